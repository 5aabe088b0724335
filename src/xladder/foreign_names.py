"""What other libraries call our settings and commands, so that errors give the right name. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from typing import Any

from xladder.errors import nearest

_LENGTH = ("steps", "frames", "epochs", "iterations")
# Our flag for the length of training → what it counts.
_UNITS = {
    "steps": "environment steps of all envs together",
    "frames": "frames of all envs together, 4 per agent step",
    "epochs": "epochs, each an episode and the updates after it",
    "iterations": "iterations, each a batch of objects and one update",
}
# Our field, or the first of several that a workload has → names in CleanRL, Stable-Baselines3, Dopamine, DQN Zoo,
# PureJaxQL, Tianshou and RLlib.
_OTHERS: dict[tuple[str, ...], str] = {
    _LENGTH: "total_timesteps timesteps total_steps num_steps max_steps total_frames num_frames steps frames epochs "
    "iterations num_iterations",
    ("learner.lr",): "learning_rate step_size alpha_lr",
    ("learner.gamma",): "discount discount_factor additional_discount",
    ("learner.memory",): "buffer_size replay_capacity replay_size memory_size max_capacity buffer_capacity",
    ("learner.batch_size",): "minibatch_size train_batch_size",
    ("learner.learning_starts",): "min_replay_history min_replay_size replay_start_size warmup_steps start_timesteps",
    ("learner.steps_per_update",): "train_frequency train_freq update_period learn_period training_freq",
    (
        "learner.target_update_period",
    ): "target_network_frequency target_update_interval target_update_freq target_update_frequency "
    "target_network_update_period target_network_update_freq sync_every",
    ("learner.epsilon",): "start_e exploration_initial_eps eps_start epsilon_start initial_epsilon",
    ("learner.epsilon_end",): "end_e exploration_final_eps eps_finish eps_end final_epsilon epsilon_train",
    ("learner.epsilon_share",): "exploration_fraction eps_decay",
    ("learner.epsilon_steps",): "epsilon_decay_period exploration_steps",
    ("evaluate_epsilon",): "epsilon_eval eval_exploration_epsilon eps_test",
    ("learner.clip",): "max_grad_norm grad_clip max_global_grad_norm",
    ("learner.hidden",): "net_arch hidden_sizes fcnet_hiddens",
    ("learner.width",): "hidden_size hidden_dim",
    ("learner.n_step",): "n_steps nstep update_horizon multi_step",
    ("learner.atoms",): "n_atoms num_atoms",
    ("learner.quantiles",): "num_quantiles n_quantiles num_tau_samples",
    ("learner.optimiser",): "optimizer",
    ("learner.optimiser_eps",): "optimizer_epsilon adam_eps",
    ("learner.prioritised",): "prioritized prioritized_replay",
    ("learner.double",): "double_dqn double_q",
    ("learner.dueling",): "dueling_dqn",
    ("learner.reward_scale",): "rew_scale",
    ("world.num_envs",): "n_envs num_environments",
    ("world.stack",): "frame_stack stack_size num_stack num_stacked_frames",
    ("world.sticky",): "repeat_action_probability sticky_actions",
}
NAMES = {other: ours for ours, others in _OTHERS.items() for other in others.split()}

# How the sentence about an unknown command goes on → the words for it in other tools.
COMMANDS_ELSEWHERE = {
    "`xladder runs` lists runs, `xladder worlds` what can be trained.": "list ls show",
    "`xladder runs` lists runs.": "history status log logs ps",
    "`xladder worlds` lists what can be trained.": "envs environments games workloads tasks models",
    "It is called `train` here.": "learn fit run start",
    "It is called `resume` here.": "continue restart",
    "It is called `sweep` here.": "tune search optimize optimise hpo",
    "It is called `compare` here.": "bench benchmark speed time",
    "It is called `eval` here.": "enjoy play score",
    "`xladder check` tests a world, `xladder eval` trained agents.": "test",
    "Every run leaves a replay in its folder `media`; `xladder report` shows it.": "replay render video movie",
    "It is called `rm` here.": "delete remove clean",
    "It is called `watch` here.": "tensorboard dashboard board ui serve",
    "It is called `inspect` here.": "profile cost",
    "It is called `doctor` here.": "info env versions",
    "`xladder --version` prints it.": "version",
    "`xladder presets` and `xladder train NAME --help` show settings.": "config configs settings algorithms algos",
}
_COMMAND_HINTS = {other: hint for hint, others in COMMANDS_ELSEWHERE.items() for other in others.split()}


# The same for flags of commands that take a run.
FLAGS_ELSEWHERE = {
    "n": "count number num samples num_samples n_samples size objects",
    "episodes": "n_eval_episodes num_episodes eval_episodes samples num_samples games",
    "out": "output o file path dir directory",
    "device": "cuda gpu platform",
    "y": "metric",
    "by": "group group_by groupby",
    "x": "axis x_axis",
}


def flag_elsewhere(name: str, known: Collection[str]) -> str | None:
    """Our name of a flag, among those known, for one that another tool has; else None."""
    return next((ours for ours, others in FLAGS_ELSEWHERE.items() if ours in known and name in others.split()), None)


def command_hint(name: str) -> str | None:
    """A sentence that says what a command of another tool is called here; None for an unknown one."""
    return _COMMAND_HINTS.get(name.lower())


def field_names(config: Any, prefix: str = "") -> Iterator[str]:
    """The names of a config's fields, nested ones as `learner.lr`."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from field_names(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def own_name(name: str, known: Collection[str]) -> str | None:
    """Our name of a setting, among those known, for a name from another library or without its group; else None."""
    last = _squashed(name)
    candidates = [*_SQUASHED.get(last, ()), *(field for field in known if _squashed(field) == last)]
    return next((field for field in candidates if field in known and field != name), None)


def other_unit(name: str, ours: str) -> str:
    """What our flag for the length of training counts, if another name says that it counts other things."""
    theirs = next((unit for unit in _LENGTH if _squashed(name).endswith(unit)), ours)
    return _UNITS[ours] if ours in _UNITS and theirs != ours else ""


def likely_name(name: str, known: Collection[str]) -> str | None:
    """The setting, among those known, that a mistyped name without its group most likely stands for; else None."""
    last_names = {_squashed(field): field for field in sorted(known, reverse=True)}
    near = nearest(_squashed(name), last_names, 0.75)
    return last_names[near] if near else None


def _squashed(name: str) -> str:
    """The last part of a name, without its group or what is between words."""
    return name.rpartition(".")[2].replace("-", "").replace("_", "")


_SQUASHED = {_squashed(other): ours for other, ours in NAMES.items()}
