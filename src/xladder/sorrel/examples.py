"""sorrel's own examples with the settings of a workload, to train, time or score agents in the original.

The worlds, observations, agents and the order of an epoch are sorrel's code. Its examples write some of the learner's
settings down where they create their models, so those of the workload are put in their place there.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import numpy as np
from omegaconf import OmegaConf
from sorrel.entities.basic_entities import EmptyEntity
from sorrel.environment import Environment
from sorrel.examples.cleanup import env as cleanup
from sorrel.examples.cleanup.entities import EmptyEntity as CleanupEmpty
from sorrel.examples.cleanup.world import CleanupWorld
from sorrel.examples.iowa import env as iowa
from sorrel.examples.iowa.entities import EmptyEntity as IowaEmpty
from sorrel.examples.iowa.world import GamblingWorld
from sorrel.examples.tag import env as tag
from sorrel.examples.treasurehunt import env as hunt
from sorrel.examples.treasurehunt.entities import EmptyEntity as HuntEmpty
from sorrel.examples.treasurehunt.world import TreasurehuntWorld
from sorrel.models.pytorch import PyTorchIQN
from sorrel.worlds import Gridworld

from xladder import bridge
from xladder.errors import UsageError

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import Config, LearnerConfig

IOWA_AGENTS = 2  # written down in sorrel
FACING_DOWN = 2


class Epoch(NamedTuple):
    """What an epoch came to."""

    reward: float  # of all agents together
    loss: float  # the sum over agents, as sorrel reports it


def example_env(
    config: Config, model: Callable[..., Any] = PyTorchIQN, device: str = "cpu", seed: int = 0
) -> Environment:
    """sorrel's example of this name, with this world and these learners' settings.

    Args:
        config: The settings of `treasurehunt`, `tag`, `iowa` or `cleanup`.
        model: What its agents learn with: a class with the arguments of sorrel's `PyTorchIQN`.
        device: Where the models compute, as PyTorch names it.
        seed: For the models' weights and for every generator that sorrel draws from.

    Raises:
        UsageError: If sorrel's example cannot be given these settings.
    """
    if config.name not in MAKERS:
        raise UsageError(f"sorrel has no example `{config.name}`: there are {', '.join(MAKERS)}.")
    w: Any = config.world
    same = w.observe == "in_turn" and not w.full_view and config.learner.n_step == 1
    if not same or (w.view != "onehot" and config.name != "treasurehunt"):
        raise UsageError(
            f"sorrel's {config.name} has other settings than these: agents observe in turn, "
            "what is around them, one-hot, and learn from single steps."
        )
    module, make = MAKERS[config.name]
    experiment = {"epochs": config.epochs, "max_turns": w.max_turns, "record_period": 10**9}
    chosen = {**model_arguments(config.learner), "device": device}
    seeds = itertools.count(seed * w.num_agents)
    seed_all(seed)
    # The name is looked up when an agent is created, and nowhere else.
    with patch.object(module, "PyTorchIQN", lambda **given: model(**given | chosen | {"seed": next(seeds)})):
        env = make(w, experiment, config.learner)
    seed_all(seed)  # sorrel seeds PyTorch from the clock when it creates an agent
    return env


def model_arguments(learner: LearnerConfig) -> dict[str, Any]:
    """The arguments of sorrel's `PyTorchIQN` for a learner's settings, except its sizes, device and seed."""
    return {
        "layer_size": learner.width,
        "epsilon": learner.epsilon,
        "n_frames": learner.n_frames,
        "sync_freq": learner.target_update_period,
        "batch_size": learner.batch_size,
        "memory_size": learner.memory,
        "LR": learner.lr,
        "TAU": learner.tau,
        "GAMMA": learner.gamma,
        "n_quantiles": learner.quantiles,
    }


def _make_hunt(w: Any, experiment: dict, learner: LearnerConfig) -> Environment:
    values = dict(zip(w.item_names, w.item_values, strict=True))
    if w.item_names != ("gem", "bone", "food") or w.wall_value != -1:
        raise UsageError("sorrel's treasurehunt has gem, bone and food, and a wall that is worth -1.")
    config = {
        "experiment": experiment,
        "model": {
            "agent_vision_radius": w.radius,
            "epsilon_decay": learner.epsilon_decay,
            "observation_spec": w.view,
            "num_agents": w.num_agents,
        },
        "world": {
            **{"height": w.height, "width": w.width, "spawn_prob": w.spawn_prob},
            **{f"{name}_value": value for name, value in values.items()},
        },
    }
    return hunt.TreasurehuntEnv(TreasurehuntWorld(config, HuntEmpty()), config)


def _make_tag(w: Any, experiment: dict, learner: LearnerConfig) -> Environment:
    config = {
        "experiment": experiment,
        "model": {"epsilon_decay": learner.epsilon_decay},
        "agent": {"num_agents": w.num_agents, "vision_radius": w.radius},
    }
    env = tag.TagEnv(Gridworld(w.height, w.width, 1, EmptyEntity()), config)
    for agent in env.agents:
        agent.reward_per_turn = w.free_reward
    return env


def _make_iowa(w: Any, experiment: dict, learner: LearnerConfig) -> Environment:
    decks = (w.deck_gains, w.deck_losses, w.loss_probs)
    if w.num_agents != IOWA_AGENTS or decks != ((1.1, 1.1, 0.6, 0.6), (2.5, 12.5, 0.5, 2.5), (0.5, 0.1, 0.5, 0.1)):
        raise UsageError(f"sorrel's iowa has {IOWA_AGENTS} agents, and four decks whose cards it writes down.")
    config = {
        "experiment": experiment,
        "model": {
            "agent_vision_radius": w.radius,
            "epsilon_decay": learner.epsilon_decay,
            "parameters": model_arguments(learner) | {"device": "cpu"},
        },
        "world": {"height": w.height, "width": w.width, "spawn_prob": w.spawn_prob},
    }
    return iowa.GamblingEnv(GamblingWorld(config, IowaEmpty()), config)


def _make_cleanup(w: Any, experiment: dict, learner: LearnerConfig) -> Environment:
    if (w.apple_value, w.zap_value, w.embedding) != (1, -1, 3):
        raise UsageError("sorrel's cleanup pays 1 for an apple and -1 for a zap, and tells places by 3 frequencies.")
    parameters = model_arguments(learner) | {"device": "cpu"}
    frames = parameters.pop("n_frames")
    config = OmegaConf.create(
        {
            "experiment": experiment,
            "env": {
                "height": w.height,
                "width": w.width,
                "layers": 3,
                "full_mdp": False,
                "pollution_threshold": w.pollution_threshold,
                "initial_apples": w.initial_apples,
                "apple_spawn_chance": w.apple_prob,
                "pollution_spawn_chance": w.pollution_prob,
                "mode": w.mode.upper(),
            },
            "model": {"iqn": {"parameters": parameters}, "epsilon_decay": learner.epsilon_decay},
            "agent": {
                "agent": {
                    "num": w.num_agents,
                    "beam_radius": w.beam_radius,
                    "obs": {"channels": 8, "vision": w.radius, "n_frames": frames},
                }
            },
        }
    )
    return cleanup.CleanupEnv(CleanupWorld(config, CleanupEmpty()), config)


MAKERS: dict[str, tuple[ModuleType, Callable[[Any, dict, Any], Environment]]] = {
    "treasurehunt": (hunt, _make_hunt),
    "tag": (tag, _make_tag),
    "iowa": (iowa, _make_iowa),
    "cleanup": (cleanup, _make_cleanup),
}


def play(env: Environment, number: int) -> float:
    """An epoch of sorrel's loop up to where the models learn. Returns the reward of all agents together."""
    env.reset()
    for agent in env.agents:
        agent.model.start_epoch_action(epoch=number)
    while env.turn < env.config.experiment.max_turns:
        env.take_turn(number)
    env.world.is_done = True
    for agent in env.agents:
        agent.model.end_epoch_action(epoch=number)
    return float(env.world.total_reward)


def run_epoch(env: Environment, number: int) -> Epoch:
    """One epoch as sorrel's `run_experiment` runs it, without its logs and pictures."""
    reward = play(env, number)
    loss = sum(float(agent.model.train_step()) for agent in env.agents)
    for agent in env.agents:
        agent.model.epsilon_decay(env.config.model.epsilon_decay)
    return Epoch(reward, loss)


def score(env: Environment, episodes: int, seed: int = 0, epsilon: float = 0.0) -> np.ndarray:
    """Let agents play without learning, from empty memories.

    Returns:
        float64 [episodes]: the reward of all agents together in each epoch.
    """
    seed_all(seed)
    for agent in env.agents:
        agent.model.set_epsilon(epsilon)
    rewards = []
    for _ in range(episodes):
        for agent in env.agents:
            agent.model.memory.clear()
        _forget(env)
        rewards.append(play(env, 1))
    return np.array(rewards)


def _forget(env: Environment) -> None:
    """Draw anew what sorrel carries over from epoch to epoch, and our worlds do not."""
    it = np.random.randint(len(env.agents))
    for i, agent in enumerate(env.agents):
        if isinstance(env, tag.TagEnv):
            agent.it = i == it
        if isinstance(env, cleanup.CleanupEnv):
            agent.direction = FACING_DOWN


def load_agents(env: Environment, files: Sequence[str | PathLike]) -> None:
    """Give the agents the models that `xladder export --to sorrel` or sorrel has saved, one file each."""
    if len(files) != len(env.agents):
        raise UsageError(f"There are {len(files)} files for {len(env.agents)} agents: it takes one for each.")
    for agent, file in zip(env.agents, files, strict=True):
        agent.model.load(file)


def seed_all(seed: int) -> None:
    """Seed every generator that sorrel draws from."""
    random.seed(seed)
    np.random.seed(seed)
    bridge.torch.manual_seed(seed)
