"""Checks that a world keeps its contract: `xladder check`.

Each finding is a sentence that names the world's function and field. Several envs are stepped with random actions, and
what they return is compared with what they promise: shapes, dtypes, spaces, ends of episodes, and that the same keys
give the same episodes.

Shapes: N envs, T steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code
from xladder.core import keys
from xladder.errors import XladderError, brief
from xladder.worlds import gymnax_world, marl_world, twin_check
from xladder.worlds.envs import Envs, Step

NUM_ENVS, STEPS, LONGEST = 8, 256, 10_240
CLOSE = 1e-5


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    kind: Literal["kept", "noted", "broken"]
    sentence: str


def kept(sentence: str) -> Finding:
    """A check that passed."""
    return Finding("kept", sentence)


def noted(sentence: str) -> Finding:
    """Something allowed that is worth knowing."""
    return Finding("noted", sentence)


def broken(sentence: str) -> Finding:
    """Something that would spoil training."""
    return Finding("broken", sentence)


def check_world(source: str, name: str, twin: str | None = None) -> Iterator[Finding]:
    """Check a world and yield the findings one by one.

    Args:
        source: where the world comes from, a key of `registry.SOURCES` (`gymnax`, `jax`, `marl`, `gym`, `zoo`).
        name: its name, as users type it.
        twin: `module:Name` of a world to compare it with, if it is in JAX; its own `twin` if not given.
    """
    jittable = partial(_check_jittable, twin=twin)
    checks: dict[str, Callable[[str], Iterator[Finding]]] = {
        "gymnax": jittable,
        "jax": jittable,
        "marl": jittable,
        "gym": _check_gym,
        "zoo": _check_zoo,
    }
    try:
        yield from checks[source](name)
    except XladderError as error:
        yield broken(str(error))
    except Exception as error:
        yield broken(f"`{name}` fails while it is stepped: {brief(error)}.")


def _check_jittable(name: str, twin: str | None = None) -> Iterator[Finding]:
    several = name.startswith(("marl/", "jaxmarl/"))
    envs: Envs = marl_world.MarlEnvs(name, NUM_ENVS) if several else gymnax_world.GymnaxEnvs(name, NUM_ENVS)
    spec = envs.spec
    step_name = "step_env"
    shown = f"{np.dtype(spec.dtype)} {list(spec.shape)}"
    who = f", {len(spec.agents)} agents ({', '.join(spec.agents)})" if spec.agents else ""
    yield kept(f"it can be reset and stepped under `jit` and `vmap`: frames are {shown}, {spec.actions} actions{who}")
    if spec.masked:
        yield noted("which actions are available is appended to the frames")
    play = jax.jit(lambda key, begin: _play(envs, key, begin), static_argnums=1)
    first, second = (jax.device_get(play(keys.root(0), 0)) for _ in range(2))
    if not _same(first, second):
        yield broken(f"the same keys do not give the same episodes: `{step_name}` or reset uses other random numbers")
    else:
        yield kept("the same keys give the same episodes")
    if _same(first, jax.device_get(play(keys.root(1), 0))):
        yield noted("different keys give the same episodes: the world is deterministic")
    frames, steps = first
    for field, values in [("observation", frames), ("reward", steps.reward)]:
        if np.asarray(values).dtype.kind == "f" and not np.isfinite(values).all():
            yield broken(f"`{step_name}` returns {article(field)} {field} that is not a finite number")
            return
    yield kept("observations and rewards are finite numbers")
    found = marl_world.load(name) if several else gymnax_world.load(name)
    yield from _ends(step_name, envs, steps, limited=bool(getattr(found, "truncates", False)))
    yield from _recompiles(found, several)
    if not several:
        yield from _spaces(found)
    if not (steps.reward != 0).any():
        yield noted(f"random actions got no reward in {NUM_ENVS * STEPS:,} steps")
    other = getattr(found.env, "twin", None) if twin is None else user_code.find(twin, "world")
    if other is not None:
        for kind, sentence in twin_check.compare(found, several, other, twin or f"{name}'s twin"):
            yield Finding(kind, sentence)


def _play(envs: Envs, key: jax.Array, begin: int) -> tuple[jax.Array, Step]:
    """Random actions: frames and steps, leaves [T, …]."""
    spec = envs.spec
    state, frames = envs.reset(keys.reset_keys(key, NUM_ENVS))
    lead = frames.shape[: frames.ndim - len(spec.shape)]

    def one(carry: Any, t: jax.Array) -> tuple[Any, Any]:
        state = carry
        uniforms = jax.random.uniform(keys.address(key, t, 0, keys.Stream.ACT), lead)
        actions = jnp.minimum((uniforms * spec.actions).astype(jnp.int32), spec.actions - 1)
        state, step = envs.step(keys.step_keys(key, t, NUM_ENVS), state, actions)
        return state, step

    _, steps = jax.lax.scan(one, state, begin + jnp.arange(STEPS))
    return jnp.concatenate([frames[None], steps.frame]), steps


def _ends(step_name: str, envs: Envs, steps: Step, limited: bool) -> Iterator[Finding]:
    """Check whether and how episodes end; `limited`: the world reports its time limit separately."""
    absent = steps.terminated & steps.truncated
    ends, cuts, begun = (steps.terminated & ~absent).sum(), (steps.truncated & ~absent).sum(), steps.is_first.any()
    if not begun and not _ends_ever(envs):
        yield broken(
            f"no episode ended within {LONGEST:,} steps of random actions: `{step_name}` never returns done, and "
            "there is no time limit"
        )
        return
    if not begun:
        yield noted(f"no episode ended within {STEPS} steps of random actions, but some did later")
        return
    yield kept(f"episodes end and restart: {int(ends)} terminations and {int(cuts)} truncations with random actions")
    if cuts == 0 and not limited:
        yield noted("no episode was truncated: a time limit, if there is one, counts as a termination")


def _ends_ever(envs: Envs) -> bool:
    def one(carry: Any) -> Any:
        state, t, over = carry
        uniforms = jax.random.uniform(keys.address(keys.root(0), t, 0, keys.Stream.ACT), lead)
        actions = jnp.minimum((uniforms * envs.spec.actions).astype(jnp.int32), envs.spec.actions - 1)
        state, step = envs.step(keys.step_keys(keys.root(0), t, NUM_ENVS), state, actions)
        return state, t + 1, over | step.is_first.any()

    state, frames = envs.reset(keys.reset_keys(keys.root(0), NUM_ENVS))
    lead = frames.shape[: frames.ndim - len(envs.spec.shape)]
    begin = state, jnp.int32(0), jnp.bool_(False)
    return bool(jax.jit(lambda c: jax.lax.while_loop(lambda c: (c[1] < LONGEST) & ~c[2], one, c))(begin)[2])


def _recompiles(found: Any, several: bool) -> Iterator[Finding]:
    """Check whether a step returns a state of the same types as it was given. We convert them; other loops may not."""
    key = jax.random.key(0)
    env = found.env
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        if several:
            taken = {agent: jnp.int32(0) for agent in found.agents}
            function = jax.jit(lambda s: env.step_env(key, s, taken)[1])
            state = env.reset(key)[1]
        else:
            function = jax.jit(lambda s: env.step_env(key, s, jnp.int32(0), found.params)[1])
            state = env.reset_env(key, found.params)[1]
        for _ in range(3):
            state = function(state)
    traces = int(getattr(function, "_cache_size", lambda: 1)())
    if traces > 1:
        yield noted(
            f"`step_env` would be compiled {traces} times in a loop of your own: the reset's state has Python numbers "
            "or other dtypes than a step's (here they are converted)"
        )
    else:
        yield kept("stepping compiles once")


def _spaces(found: Any) -> Iterator[Finding]:
    """Check whether observations are in the declared space."""
    ask = getattr(found.env, "observation_space", None)
    try:
        space = ask(found.params) if callable(ask) else None
    except NotImplementedError:
        space = None
    if space is None or not hasattr(space, "low"):
        yield noted("`observation_space` is not a Box, so observations were not compared with it")
        return
    key = jax.random.key(0)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        observation = found.env.reset_env(key, found.params)[0]
    seen = np.asarray(observation)
    if tuple(space.shape) != seen.shape:
        yield broken(f"`observation_space` says {list(space.shape)}, but `reset_env` returns {list(seen.shape)}")
    elif (seen < np.asarray(space.low) - CLOSE).any() or (seen > np.asarray(space.high) + CLOSE).any():
        yield broken(
            f"`reset_env` returns an observation outside `observation_space`: {seen.min():g} … {seen.max():g}, where "
            f"{np.min(space.low):g} … {np.max(space.high):g} is declared"
        )
    else:
        yield kept("observations are in `observation_space`")


def _check_gym(name: str) -> Iterator[Finding]:
    """Run Gymnasium's own check, then ours."""
    from xladder.worlds.gym_host import GymEnvs

    envs = GymEnvs(name, 2, 0)
    yield kept(f"it can be stepped: frames are {envs.spec.dtype} {list(envs.spec.shape)}, {envs.spec.actions} actions")
    envs.close()
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = gymnasium.make(name.removeprefix("gym/"))
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except Exception as error:
            yield broken(f"Gymnasium's `check_env` says: {brief(error)}")
        else:
            yield kept("Gymnasium's `check_env` finds nothing")
        finally:
            env.close()
    for line in list(dict.fromkeys(" ".join(str(w.message).split()) for w in caught))[:3]:
        yield noted(f"Gymnasium says: {line[:200]}")


def _check_zoo(name: str) -> Iterator[Finding]:
    """Run PettingZoo's own check, then ours."""
    from xladder.worlds import zoo_host

    envs = zoo_host.ZooEnvs(name, 2, 0)
    spec = envs.spec
    yield kept(f"frames are {spec.dtype} {list(spec.shape)}, {spec.actions} actions, {len(spec.agents)} agents")
    rng, ended = np.random.default_rng(0), False
    envs.reset()
    for _ in range(LONGEST // 10):
        envs.send(rng.integers(0, spec.actions, (len(spec.agents), 2)))
        ended = ended or bool(envs.recv().is_first.any())
        if ended:
            break
    yield kept("episodes end and restart") if ended else noted(f"no episode ended within {LONGEST // 10:,} steps")
    envs.close()
    from pettingzoo.test import parallel_api_test

    made = zoo_host.make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            parallel_api_test(made, num_cycles=200)
        except Exception as error:
            yield broken(f"PettingZoo's `parallel_api_test` says: {brief(error)}")
        else:
            yield kept("PettingZoo's `parallel_api_test` passes")
        finally:
            made.close()


def article(word: str) -> str:
    """`a` or `an`."""
    return "an" if word[0] in "aeiou" else "a"


def _same(a: Any, b: Any) -> bool:
    return all(
        np.array_equal(x, y, equal_nan=True) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )
