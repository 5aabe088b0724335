"""The presets are the published agents: every number, as its source has it, and in the source's units.

What the sources' files say is written down here under their own names, with periods in frames where they count frames.
Files, at the commits read: deepmind/dqn_zoo f87bb1f, google/dopamine 5873f54, vwxyzjn/cleanrl fe8d8a0, mttga/purejaxql
47af6d7, kenjyoung/MinAtar 4241f24, google-research munchausen_rl 72d82b6, FLAIROx/JaxMARL 9474694.
"""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from xladder.cli import presets as command
from xladder.cli.main import main
from xladder.errors import UsageError
from xladder.families.value import atari_scores
from xladder.families.value import presets as named
from xladder.families.value.learner_config import MEMBERS, LearnerConfig
from xladder.plans import plan

INF = float("inf")
DOCS = Path(__file__).parent.parent / "docs/reference/presets.md"

# run_atari.py of DQN Zoo, by agent. `decay` is exploration_epsilon_decay_frame_fraction, `start`
# min_replay_capacity_fraction.
ZOO_DQN = {
    "replay_capacity": 1e6, "start": 0.05, "batch_size": 32, "max_frames_per_episode": 108_000, "num_stacked_frames": 4,
    "begin": 1.0, "end": 0.1, "decay": 0.02, "eval": 0.05, "target_network_update_period": 4e4, "lr": 0.00025,
    "eps": 0.01 / 32**2, "optimiser": "rmsprop", "additional_discount": 0.99, "num_iterations": 200,
    "num_train_frames": 1e6, "learn_period": 16, "max_global_grad_norm": INF, "head": "scalar",
}  # fmt: skip
ZOO_DOUBLE = {"end": 0.01, "eval": 0.01, "target_network_update_period": 1.2e5}
ZOO_ADAM = {"end": 0.01, "eval": 0.001, "eps": 0.01 / 32, "optimiser": "adam", "max_global_grad_norm": 10.0}
ZOO = {
    "dqn": {},
    "double": ZOO_DOUBLE,
    "dueling": {**ZOO_DOUBLE, "max_global_grad_norm": 10.0},
    "c51": {**ZOO_ADAM, "head": "categorical"},
    "qrdqn": {**ZOO_ADAM, "lr": 0.00005, "head": "quantile"},
    "iqn": {**ZOO_ADAM, "lr": 0.00005, "start": 0.02, "max_global_grad_norm": INF, "head": "implicit"},
    "rainbow": {
        **ZOO_ADAM, "begin": 0.0, "end": 0.0, "eval": 0.0, "start": 0.02, "target_network_update_period": 3.2e4,
        "lr": 0.00025 / 4, "eps": 0.005 / 32, "head": "categorical",
    },
}  # fmt: skip
# Dopamine's gin files (and munchausen_rl's, in its style), by agent.
GIN_DQN = {
    "gamma": 0.99, "update_horizon": 1, "min_replay_history": 20_000, "update_period": 4, "target_update_period": 8_000,
    "epsilon_train": 0.01, "epsilon_eval": 0.001, "epsilon_decay_period": 250_000, "lr": 6.25e-5, "eps": 1.5e-4,
    "num_iterations": 200, "training_steps": 250_000, "max_steps_per_episode": 27_000, "max_capacity": 1_000_000,
    "batch_size": 32, "head": "scalar", "loss": "squared", "begin": 1.0,
}  # fmt: skip
GIN = {
    "dqn": {},
    "c51": {"lr": 0.00025, "eps": 0.0003125, "head": "categorical"},
    "qrdqn": {"lr": 0.00005, "eps": 0.0003125, "update_horizon": 3, "head": "quantile"},
    "iqn": {"lr": 0.00005, "eps": 0.0003125, "update_horizon": 3, "head": "implicit"},
    "munchausen": {"lr": 0.00005, "eps": 0.0003125, "loss": "huber"},
    "rainbow": {"update_horizon": 3, "head": "categorical", "begin": 0.0, "epsilon_train": 0.0},
}
# Dopamine's labs/atari_100k/configs/DER.gin. Its replay_capacity of a million is more than the run has.
DER = {
    "update_horizon": 10, "min_replay_history": 1600, "update_period": 1, "target_update_period": 2000,
    "epsilon_decay_period": 2000, "lr": 0.0001, "eps": 0.00015, "num_iterations": 10, "training_steps": 10_000,
    "max_capacity": 100_000, "head": "categorical",
}  # fmt: skip
# CleanRL's Args of dqn_atari_jax.py, c51_atari_jax.py and rainbow_atari.py.
ARGS_DQN = {
    "total_timesteps": 10_000_000, "learning_rate": 1e-4, "buffer_size": 1_000_000, "gamma": 0.99, "eps": 1e-8,
    "target_network_frequency": 1000, "batch_size": 32, "start_e": 1.0, "end_e": 0.01, "exploration_fraction": 0.10,
    "learning_starts": 80_000, "train_frequency": 4, "n_step": 1, "head": "scalar",
}  # fmt: skip
ARGS = {
    "dqn": {},
    "c51": {"learning_rate": 2.5e-4, "eps": 0.01 / 32, "target_network_frequency": 10_000, "head": "categorical"},
    "rainbow": {
        "learning_rate": 0.0000625, "eps": 1.5e-4, "target_network_frequency": 8000, "start_e": 0.0, "end_e": 0.0,
        "n_step": 3, "head": "categorical",
    },
}  # fmt: skip
# What an agent has beyond a DQN, in our words; the numbers are the sources'.
DOUBLE = {"double": True}
ATOMS = {"atoms": 51, "v_min": -10.0, "v_max": 10.0}
RAINBOW = {**DOUBLE, **ATOMS, "dueling": True, "noisy": True, "prioritised": True, "alpha": 0.5}
MORE = {
    ("nature", "double"): DOUBLE,
    ("nature", "dueling"): {**DOUBLE, "dueling": True},
    ("nature", "c51"): ATOMS,
    ("nature", "qrdqn"): {"quantiles": 201},
    ("nature", "iqn"): {"quantiles": 64, "act_quantiles": 64, "cosines": 64},
    ("nature", "rainbow"): {**RAINBOW, "sigma": 0.1, "beta": 0.4, "n_step": 3, "explore_from": 0},
    ("atari100k", "der"): {**RAINBOW, "streams": "shared", "sigma": 0.1, "beta": 0.5, "beta_end": 0.5},
    ("dopamine", "c51"): ATOMS,
    ("dopamine", "qrdqn"): {"quantiles": 200, "prioritised": True, "alpha": 0.5, "beta": 0.0, "beta_end": 0.0},
    ("dopamine", "iqn"): {"quantiles": 64, "act_quantiles": 32, "cosines": 64},
    ("dopamine", "munchausen"): {
        "munchausen": True, "munchausen_scale": 0.9, "temperature": 0.03, "munchausen_floor": -1.0,
    },
    ("dopamine", "rainbow"): {
        **RAINBOW, "sigma": 0.1, "beta": 0.5, "beta_end": 0.5, "streams": "shared", "explore_from": 0,
    },
    ("cleanrl", "c51"): ATOMS,
    ("cleanrl", "rainbow"): {**RAINBOW, "sigma": 0.5, "beta": 0.4},
}  # fmt: skip


def of_zoo(f):
    """Settings of a learner, frames and the evaluation's ε from DQN Zoo's flags, whose periods are in frames."""
    start = round(f["start"] * f["replay_capacity"])
    frames = f["num_iterations"] * f["num_train_frames"]
    learner = {
        "torso": "nature", "width": 512, "head": f["head"], "lr": f["lr"], "optimiser": f["optimiser"],
        "optimiser_eps": f["eps"], "loss": "huber", "clip": f["max_global_grad_norm"],
        "gamma": f["additional_discount"], "clip_rewards": True, "batch_size": f["batch_size"],
        "memory": f["replay_capacity"], "learning_starts": start,
        "steps_per_update": f["learn_period"] / 4, "target_update_period": f["target_network_update_period"] / 4,
        "epsilon": f["begin"], "epsilon_end": f["end"], "epsilon_steps": round(f["decay"] * frames / 4),
        "explore_from": start,
    }  # fmt: skip
    return learner, frames, f["eval"], {"cap_frames": f["max_frames_per_episode"], "stack": f["num_stacked_frames"]}


def of_gin(f):
    learner = {
        "torso": "nature_same", "width": 512, "head": f["head"], "lr": f["lr"], "optimiser": "adam",
        "optimiser_eps": f["eps"], "loss": f["loss"], "clip": INF, "gamma": f["gamma"], "clip_rewards": True,
        "batch_size": f["batch_size"], "memory": f["max_capacity"], "learning_starts": f["min_replay_history"],
        "steps_per_update": f["update_period"], "target_update_period": f["target_update_period"],
        "epsilon": f["begin"], "epsilon_end": f["epsilon_train"], "epsilon_steps": f["epsilon_decay_period"],
        "explore_from": f["min_replay_history"], "n_step": f["update_horizon"],
    }  # fmt: skip
    frames = f["num_iterations"] * f["training_steps"] * 4
    return learner, frames, f["epsilon_eval"], {"cap_frames": 4 * f["max_steps_per_episode"], "stack": 4}


def of_args(f):
    learner = {
        "torso": "nature", "width": 512, "head": f["head"], "lr": f["learning_rate"], "optimiser": "adam",
        "optimiser_eps": f["eps"], "loss": "squared", "clip": INF, "gamma": f["gamma"], "clip_rewards": True,
        "batch_size": f["batch_size"], "memory": f["buffer_size"], "learning_starts": f["learning_starts"],
        "steps_per_update": f["train_frequency"], "target_update_period": f["target_network_frequency"],
        "epsilon": f["start_e"], "epsilon_end": f["end_e"],
        "epsilon_steps": round(f["exploration_fraction"] * f["total_timesteps"]), "explore_from": 0,
        "n_step": f["n_step"],
    }  # fmt: skip
    return learner, 4 * f["total_timesteps"], f["end_e"], {"cap_frames": 108_000, "stack": 4}


# Sticky actions, life lost is an end, no-op frames, FIRE at the start and after a lost life.
RULES = {
    "nature": (0.0, True, 30, False, False),
    "dopamine": (0.25, False, 0, False, False),
    "cleanrl": (0.0, True, 30, True, True),
    "atari100k": (0.0, True, 0, False, False),
}
SOURCES = {
    "nature": (of_zoo, ZOO_DQN, ZOO),
    "dopamine": (of_gin, GIN_DQN, GIN),
    "cleanrl": (of_args, ARGS_DQN, ARGS),
    "atari100k": (of_gin, GIN_DQN, {"der": DER}),
}
EVERY = [(protocol, algorithm) for protocol, (*_, agents) in SOURCES.items() for algorithm in agents]


@pytest.mark.parametrize(("protocol", "algorithm"), EVERY)
def test_every_setting_on_atari_is_the_sources(protocol, algorithm):
    config = named.presets("atari/breakout", protocol)[algorithm]
    translate, base, agents = SOURCES[protocol]
    learner, frames, epsilon, world = translate({**base, **agents[algorithm]})
    expected = LearnerConfig(**{**learner, **MORE.get((protocol, algorithm), {})})
    for field in fields(LearnerConfig):  # one by one: the failing one is named
        assert getattr(config.learner, field.name) == getattr(expected, field.name), field.name
    w = config.world
    assert (w.sticky, w.life_loss, w.noops, w.fire, w.fire_after_life) == RULES[protocol]
    assert (w.cap_frames, w.stack) == (world["cap_frames"], world["stack"])
    assert (config.frames, config.evaluate_epsilon, config.protocol) == (frames, epsilon, protocol)
    named.check(config)


def test_the_list_above_is_all_there_is():
    found = [(agent.protocol, agent.algorithm) for agent in command.PUBLISHED["atari/GAME"]]
    assert sorted(found) == sorted(EVERY)
    for protocol in SOURCES:
        presets, first = named.presets("atari/pong", protocol), "der" if protocol == "atari100k" else "dqn"
        assert presets["default"] == presets[protocol] == presets[first] == named.presets("atari/pong")[protocol]
        assert {presets[name].protocol for name in (*MEMBERS, "der") if name in presets} == {protocol}
        assert set(presets) | set(presets.absent) == {"default", *SOURCES, *MEMBERS, "der", "vdn", "pqn"}


@pytest.mark.parametrize("protocol", [None, "cleanrl"])
def test_pqn_on_atari_is_left_out_with_a_reason(protocol, capsys):
    why = "PQN (mttga/purejaxql: purejaxql/pqn_atari.py, vwxyzjn/cleanrl: cleanrl/pqn_atari_envpool.py) is left out"
    with pytest.raises(UsageError, match=re.escape(why)):
        plan("atari/pong", preset="pqn", protocol=protocol)
    assert run() == 0
    assert why in capsys.readouterr().out


def test_without_a_protocol_an_algorithm_is_the_first_that_was_published():
    found = named.presets("atari/pong")
    assert found["default"].protocol == "cleanrl"
    assert {name: found[name].protocol for name in MEMBERS} == {
        "dqn": "cleanrl", "c51": "cleanrl", "rainbow": "cleanrl", "qrdqn": "dopamine", "iqn": "dopamine",
        "munchausen": "dopamine", "double": "nature", "dueling": "nature",
    }  # fmt: skip
    for name in MEMBERS:
        assert found[name] == named.presets("atari/pong", found[name].protocol)[name]


# pqn_cartpole.yaml and pqn_minatar.yaml of PureJaxQL; pqn.py, dqn.py and c51.py of CleanRL; MinAtar's examples/dqn.py.
PQN = {
    ("cartpole", "purejaxql"): (32, 64, 16, 4, 0.95, (256,), 256, 1e-4, 0.1, 0.2, 0.2, 5e5),
    ("cartpole", "cleanrl"): (4, 128, 4, 4, 0.65, (120,), 84, 2.5e-4, 1.0, 0.05, 0.5, 5e5),
    ("minatar/asterix", "purejaxql"): (128, 32, 32, 2, 0.65, (128,), 128, 5e-4, 1.0, 0.05, 0.1, 1e7),
}


@pytest.mark.parametrize(("world", "protocol"), PQN)
def test_pqn_is_the_sources(world, protocol):
    config = named.presets(world, protocol)["pqn"]
    envs, steps, minibatches, epochs, lambda_, hidden, width, lr, scale, end, decay, total = PQN[world, protocol]
    c, p = config.learner, config.pqn
    assert (config.algorithm, config.world.num_envs, p.rollout, p.minibatches, p.passes, p.lambda_) == (
        "pqn", envs, steps, minibatches, epochs, lambda_,
    )  # fmt: skip
    assert (c.hidden, c.width, c.lr, c.reward_scale, c.epsilon_end, c.epsilon_share) == (
        hidden,
        width,
        lr,
        scale,
        end,
        decay,
    )
    assert (c.clip, c.gamma, c.optimiser, c.optimiser_eps, c.epsilon) == (10.0, 0.99, "radam", 1e-8, 1.0)
    assert config.steps == total // (steps * envs) * steps * envs
    assert config.explore_steps == round(decay * config.steps)
    named.check(config)


def test_cleanrl_s_cartpole_is_the_source_s():
    found = named.presets("cartpole", "cleanrl")
    for name, atoms, eps in (("dqn", 51, 1e-8), ("c51", 101, 0.01 / 128)):
        c = found[name].learner
        assert (c.hidden, c.width, c.lr, c.memory, c.batch_size, c.gamma) == ((120,), 84, 2.5e-4, 10_000, 128, 0.99)
        assert (c.target_update_period, c.tau, c.learning_starts, c.steps_per_update) == (500, 0.0, 10_000, 10)
        assert (c.epsilon, c.epsilon_end, c.loss, c.optimiser, c.clip) == (1.0, 0.05, "squared", "adam", INF)
        assert (c.atoms, c.optimiser_eps, c.double, c.n_step) == (atoms, eps, False, 1)
        assert (found[name].steps, found[name].explore_steps, found[name].evaluate_epsilon) == (500_000, 250_000, 0.05)
    assert (found["c51"].learner.head, found["c51"].learner.v_min, found["c51"].learner.v_max) == (
        "categorical",
        -100.0,
        100.0,
    )


def test_minatar_s_dqn_is_the_source_s():
    config = named.presets("minatar/breakout", "minatar")["dqn"]
    c = config.learner
    assert (c.torso, c.width, c.batch_size, c.memory, c.gamma) == ("minatar", 128, 32, 100_000, 0.99)
    assert (c.target_update_period, c.steps_per_update, c.learning_starts, c.explore_from) == (1000, 1, 5000, 5000)
    assert (c.optimiser, c.lr, c.optimiser_eps, c.loss, c.clip) == ("rmsprop_torch", 0.00025, 0.01, "huber", INF)
    assert (c.epsilon, c.epsilon_end, c.epsilon_steps, config.steps) == (1.0, 0.1, 100_000, 5_000_000)
    # A copy every 1,000 updates, one update per step.
    assert c.target_update_period % config.per_tick == 0 and config.updates_per_tick == config.world.num_envs


def test_der_has_one_env_and_its_scores():
    config = named.presets("atari/pong")["der"]
    assert (config.world.num_envs, config.protocol, config.agent_steps) == (1, "atari100k", 100_000)
    assert len(atari_scores.DER) == 26 and set(atari_scores.DER) <= set(atari_scores.GAMES)
    said = config.judge(-19.0, config.frames)
    assert said["verdict"] == "beside" and "published is −19.3 (evaluation of the final agent" in said["placing"]


def test_vdn_is_jaxmarls():
    """ql_rnn_mpe.yaml and vdn_rnn.py; updates and buffers count episodes of 26 steps in 8 envs there."""
    pytest.importorskip("jaxmarl")
    found = named.presets("jaxmarl/MPE_simple_spread_v3", "jaxmarl")
    config, c = found["vdn"], found["vdn"].learner
    assert found["default"] == config and (config.world.team, config.world.shared) == (True, True)
    assert (config.world.num_envs, c.hidden, c.recurrent, c.batch_size) == (8, (64,), 64, 32)
    assert (c.lr, c.clip, c.gamma, c.optimiser, c.loss, c.double) == (0.005, 25.0, 0.9, "radam", "squared", True)
    assert (c.memory, c.steps_per_update, c.learning_starts) == (5000 * 26, 8 * 26, 10_000)
    assert (c.target_update_period // c.steps_per_update, c.tau) == (200, 0.0)
    assert (c.epsilon, c.epsilon_end, c.epsilon_share) == (1.0, 0.05, 0.1)
    assert config.steps == 1e7 // 208 * 208 and config.updates_per_tick == 1 and config.steps_per_tick == 26
    named.check(config)
    with pytest.raises(UsageError, match="The protocol `jaxmarl` has no `iqn`: it has vdn"):
        plan("jaxmarl/MPE_simple_spread_v3", preset="iqn", protocol="jaxmarl")


def test_a_preset_that_a_protocol_does_not_have_is_a_sentence_with_those_it_has():
    with pytest.raises(UsageError) as error:
        plan("atari/pong", "parallel", preset="munchausen", protocol="cleanrl")
    assert str(error.value) == (
        "The protocol `cleanrl` has no `munchausen`: it has dqn, c51 and rainbow. `munchausen` is published under "
        "dopamine."
    )
    with pytest.raises(UsageError, match="`purejaxql` has no `dqn`: it has pqn"):
        plan("cartpole", preset="dqn", protocol="purejaxql")


@pytest.mark.parametrize("flag", [["--protocol", "purejaxql"], ["--protocol=purejaxql"]])
def test_the_command_line_takes_protocols_of_small_worlds(flag, capsys):
    assert main(["train", "cartpole", "--preset", "pqn", *flag, "--steps", "2049", "--rung", "torch"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "2,049 steps are rounded up to 4,096: a tick is 64 steps of 32 envs and 64 updates, 2,048 steps."
    assert said[1].startswith("xladder: `torch` cannot run this") and len(said) == 2


def test_a_table_of_every_number_and_its_source_is_in_the_docs():
    """`xladder presets --markdown` writes it."""
    written = DOCS.read_text(encoding="utf-8")
    assert written.endswith(command.as_markdown(command.select(None, None)))
    for agents in command.PUBLISHED.values():
        for agent in agents:
            assert all(source for field, (_, source) in agent.table.items() if field != "protocol"), agent.source
            assert agent.differences


def test_what_is_deliberately_different_is_said_by_eval():
    for name in ("iqn", "dqn"):
        config = named.presets("atari/pong", "dopamine")[name]
        said = config.judge(1.0, config.frames)["caveats"][-1]
        assert said.startswith(f"The settings are those of {config.agent.source}. Deliberately different: Several envs")
    changed = replace(config, learner=replace(config.learner, lr=1e-3))
    assert changed.agent is None
    assert not any("Deliberately" in line for line in changed.judge(1.0, changed.frames)["caveats"])


# ---- the command ---------------------------------------------------------------------------------------------------


def run(*words):
    return main(["presets", *words])


def test_presets_lists_algorithms_and_protocols_with_sources(capsys):
    assert run() == 0
    shown = capsys.readouterr().out
    assert (
        "dopamine  iqn        google/dopamine: dopamine/jax/agents/implicit_quantile/configs/implicit_quantile.gin"
        in shown
    )
    assert run("rainbow", "--protocol", "nature") == 0
    shown = capsys.readouterr().out
    assert "learner.target_update_period  8,000" in shown and "target_network_update_period" in shown
    assert "Deliberately different: No share of the samples is uniform" in shown
    assert run("c51", "--json", "-") == 0
    agents = json.loads(capsys.readouterr().out)["agents"]
    assert {(a["world"], a["protocol"]) for a in agents} == {
        ("atari/GAME", "nature"), ("atari/GAME", "dopamine"), ("atari/GAME", "cleanrl"), ("cartpole", "cleanrl"),
    }  # fmt: skip
    assert agents[0]["settings"]["learner.lr"] == {"value": 0.00025, "source": "learning_rate 0.00025"}


def test_presets_of_a_workload(capsys):
    assert run("cartpole", "--json", "-") == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["presets"]["dueling"] == {"learner.dueling": True, "learner.n_step": 1}
    assert "Published settings: `--protocol cleanrl`, `--protocol purejaxql`." in out.err
    assert run("treasurehunt") == 0
    assert "sorrel" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("iqn --protocol cleanrl", "The protocol `cleanrl` has no `iqn`: it has dqn, c51, rainbow, pqn."),
        (
            "iqn --protocol dopamin",
            "There is no protocol `dopamin`: there are nature, dopamine, cleanrl, atari100k, purejaxql, minatar, "
            "jaxmarl.",
        ),
        ("catch --protocol nature", "`catch` has no protocols"),
        ("hypergrid --protocol nature", "`hypergrid` has no protocols"),
        ("iqm", "There is no algorithm or workload `iqm`. Did you mean `iqn`?"),
        ("zzz", "There is no world `zzz`"),
    ],
)
def test_presets_that_do_not_exist(words, said, capsys):
    assert run(*words.split()) == 2
    assert said in capsys.readouterr().err
