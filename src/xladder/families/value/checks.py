"""Checks of a value learner's settings; bad ones raise a `UsageError`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xladder.errors import UsageError, need
from xladder.families.value import own_torsos
from xladder.families.value.config import ValueConfig
from xladder.families.value.torsos import is_own
from xladder.settings import MOST_EPISODES, MOST_LAYERS, MOST_STEPS_SUMMED

_COUNTS = (
    "width",
    "sequence",
    "n_step",
    "batch_size",
    "strata",
    "memory",
    "steps_per_update",
    "explore_repeat",
    "atoms",
    "quantiles",
    "act_quantiles",
    "cosines",
)
_UNUSED_BY_PQN = (
    "recurrent",
    "burn_in",
    "sequence",
    "eta",
    "double",
    "noisy",
    "n_step",
    "prioritised",
    "munchausen",
    "loss",
    "kappa",
    "batch_size",
    "memory",
    "learning_starts",
    "steps_per_update",
    "target_update_period",
    "tau",
    "atoms",
    "v_min",
    "v_max",
    "quantiles",
    "act_quantiles",
    "cosines",
    "sigma",
    "alpha",
    "beta",
    "beta_end",
    "munchausen_scale",
    "munchausen_floor",
    "temperature",
)


def check_learner(config: ValueConfig) -> None:
    """Raise a `UsageError` that names the field, its value and what is allowed."""
    c, p, envs = config.learner, config.pqn, config.world.rows

    for flag, count in [
        ("world.num-envs", envs),
        ("world.stack", config.world.stack),
        *((f"learner.{name.replace('_', '-')}", getattr(c, name)) for name in _COUNTS),
        *((f"pqn.{name}", getattr(p, name)) for name in ("rollout", "minibatches", "passes")),
        *(("learner.hidden", width) for width in c.hidden),
    ]:
        need(count >= 1, flag, count, "it has to be 1 or more")
    layers = len(c.hidden)
    need(layers <= MOST_LAYERS, "learner.hidden", f"{layers:,} layers", f"there have to be {MOST_LAYERS} or less")
    need(c.n_step <= MOST_STEPS_SUMMED, "learner.n-step", c.n_step, f"it has to be 1 to {MOST_STEPS_SUMMED}")
    for name in ("recurrent", "burn_in", "learning_starts", "target_update_period", "epsilon_steps", "explore_from"):
        need(getattr(c, name) >= 0, f"learner.{name.replace('_', '-')}", getattr(c, name), "it cannot be negative")
    for flag, positive in [
        ("learner.lr", c.lr),
        ("learner.optimiser-eps", c.optimiser_eps),
        ("learner.kappa", c.kappa),
        ("learner.temperature", c.temperature),
        ("learner.reward-scale", c.reward_scale),
    ]:
        need(0.0 < positive < float("inf"), flag, positive, "it has to be a positive number")
    need(c.clip > 0.0, "learner.clip", c.clip, "it has to be positive (inf for no clipping)")
    shares = (
        "gamma",
        "tau",
        "epsilon",
        "epsilon_end",
        "epsilon_share",
        "alpha",
        "beta",
        "beta_end",
        "eta",
        "munchausen_scale",
    )
    for name in shares:
        flag, fraction = f"learner.{name.replace('_', '-')}", getattr(c, name)
        need(0.0 <= fraction <= 1.0, flag, fraction, "it has to lie in [0, 1]")
    need(0.0 <= p.lambda_ <= 1.0, "pqn.lambda_", p.lambda_, "it has to lie in [0, 1]")
    need(0.0 <= c.sigma < float("inf"), "learner.sigma", c.sigma, "it cannot be negative")
    need(-float("inf") < c.munchausen_floor <= 0.0, "learner.munchausen-floor", c.munchausen_floor, "it cannot be > 0")
    need(
        -float("inf") < c.v_min < c.v_max < float("inf"),
        "learner.v-min",
        c.v_min,
        f"it has to be below `--learner.v-max` ({c.v_max})",
    )
    need(c.head != "categorical" or c.atoms >= 2, "learner.atoms", c.atoms, "a categorical head needs 2 or more")
    need(
        not (c.munchausen and c.head == "categorical"),
        "learner.head",
        c.head,
        "the Munchausen bonus needs values or quantiles: use scalar, quantile or implicit",
    )
    need(
        not (c.munchausen and c.double),
        "learner.double",
        True,
        "Munchausen averages over actions instead of picking one: use `--learner.no-double`, or leave it out",
    )
    per, replays = c.steps_per_update, config.algorithm != "pqn"
    need(
        c.target_update_period > 0 or c.tau > 0 or not replays,
        "learner.target-update-period",
        c.target_update_period,
        "without hard updates `--learner.tau` has to be positive, or the target network never changes",
    )
    small = [n for n in range(1, math.isqrt(envs) + 1) if envs % n == 0]
    fitting = sorted({*small, *(envs // n for n in small), max(1, round(per / envs)) * envs})
    need(
        per % envs == 0 or envs % per == 0 or not replays,
        "learner.steps-per-update",
        per,
        f"with {envs} envs it has to divide them or be a multiple of them: "
        f"{min(fitting, key=lambda n: abs(n - per))} is the nearest",
    )
    rows = c.memory // envs
    need(
        not replays or rows >= config.world.stack + c.span + 1,
        "learner.memory",
        c.memory,
        f"with `--world.num-envs {envs}`, frames stacked {config.world.stack} deep and {c.n_step}-step returns"
        f"{f' in sequences of {c.burn_in} + {c.sequence}' * bool(c.recurrent)} it has "
        f"to be {(config.world.stack + c.span + 1) * envs:,} or more",
    )
    shared = math.gcd(envs, c.batch_size)
    need(
        shared % c.strata == 0,
        "learner.strata",
        c.strata,
        f"it has to divide both {envs} envs and batches of {c.batch_size}: the largest is {shared}",
    )
    need(
        c.strata == 1 or not c.prioritised,
        "learner.strata",
        c.strata,
        "prioritised replay does not support strata: use 1, or leave out `--learner.prioritised`",
    )
    if config.algorithm == "pqn":
        size = p.rollout * envs
        need(
            size % p.minibatches == 0,
            "pqn.minibatches",
            p.minibatches,
            f"a rollout of {p.rollout} steps of {envs} envs has {size} transitions, which it has to divide",
        )
        need(c.head == "scalar", "learner.head", c.head, "PQN learns values: use scalar")
    length, most = getattr(config, config.length), (2**31 - 1) * config.length_per_step
    need(length >= 1, config.length, length, "it has to be 1 or more")
    need(config.agent_steps < 2**31, config.length, length, f"at most {most} {config.length} are possible")
    rate = config.evaluate_epsilon
    need(0.0 <= rate <= 1.0, "evaluate-epsilon", rate, "it has to lie in [0, 1]")
    need(config.evaluate_every >= 0, "evaluate-every", config.evaluate_every, "it cannot be negative")
    episodes = config.evaluate_episodes
    need(0 <= episodes <= MOST_EPISODES, "evaluate-episodes", episodes, f"it has to be 0 to {MOST_EPISODES:,}")


def check_unused(config: ValueConfig, presets: Callable[[str], Mapping[str, Any]]) -> None:
    """Raise a `UsageError` for a setting that PQN has no use for; `presets` are those of a world."""
    if config.algorithm != "pqn":
        return
    own = presets(config.name)["pqn"].learner
    for name in _UNUSED_BY_PQN:
        value = getattr(config.learner, name)
        # The value may be the user's own, or come from the preset they started from.
        allowed = f"PQN has no use for it: start from `--preset pqn` and leave it at {getattr(own, name)}"
        need(value == getattr(own, name), f"learner.{name.replace('_', '-')}", value, allowed)


def check_scaling(config: ValueConfig) -> None:
    """Raise a `UsageError` if observations cannot be normalised by running statistics as they should."""
    if config.world.scaling is None:
        return
    eps, clip = config.world.scaling
    need(0.0 < eps < float("inf"), "world.normalise-eps", eps, "it has to be a positive number")
    need(clip > 0.0, "world.normalise-clip", clip, "it has to be positive (inf for no limit)")
    spec, name = config.world.spec(), config.world.name
    if np.dtype(spec.dtype).kind != "f":
        raise UsageError(
            f"`{name}` has images, or other numbers that are not floats ({np.dtype(spec.dtype)}), which the network "
            "scales itself: leave out `--world.normalise running`."
        )
    whole = [part for part, _, dtype in spec.fields if np.dtype(dtype).kind != "f"]
    if whole and is_own(config.learner.torso) and own_torsos.is_by_key(config.learner.torso):
        raise UsageError(
            f"The torso `{config.learner.torso}` takes {whole[0]!r} as whole numbers, which normalised ones are not: "
            "leave out `--world.normalise running`, or use a torso without `by_key`."
        )
