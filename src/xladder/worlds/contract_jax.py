"""Checks of a jittable world, with gymnax's or JaxMARL's API: several envs are stepped with random actions.

Shapes: N envs, A agents, T steps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code
from xladder.core import keys
from xladder.worlds import gymnax_world, marl_world, twin_check
from xladder.worlds.arguments import arguments
from xladder.worlds.envs import Envs, EnvSpec, Step, available
from xladder.worlds.findings import LONGEST, STEPS, Finding, broken, check_ends, check_values, kept, noted, remarks
from xladder.worlds.jax_checks import IMPURE, differs_traced_again, same

NUM_ENVS = 8
CLOSE = 1e-5


def check_jittable(name: str, twin: str | None = None, kwargs: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Trace the world, step it, and compare it with its twin if it has one, or with the one that is named."""
    several = name.startswith(("marl/", "jaxmarl/"))
    made = marl_world.MarlEnvs if several else gymnax_world.GymnaxEnvs
    envs: Envs = made(name, NUM_ENVS, kwargs)
    spec, found = envs.spec, (marl_world if several else gymnax_world).load(name, kwargs)
    step_name = "step_env"
    shown = f"{np.dtype(spec.dtype)} {list(spec.shape)}"
    who = f", {len(spec.agents)} agents ({', '.join(spec.agents)})" if spec.agents else ""
    yield kept(f"it can be reset and stepped under `jit` and `vmap`: frames are {shown}, {spec.actions} actions{who}")
    limit = None if several else _limit(found)
    play = jax.jit(lambda key: _play(envs, key, limit))
    first, second = (jax.device_get(play(keys.root(0))) for _ in range(2))
    if not same(first, second):
        yield broken(f"the same keys do not give the same episodes: `{step_name}` or reset uses other random numbers")
    elif fault := _draws_elsewhere(found, several):
        yield broken(fault)
    else:
        yield kept("the same keys give the same episodes")
    if same(first, jax.device_get(play(keys.root(1)))):
        yield noted("different keys give the same episodes: the world is deterministic")
    frames, steps, limited = first
    faults = list(check_values(step_name, spec, frames, steps))
    if faults:
        yield from faults
        return
    yield kept("observations and rewards are finite numbers")
    yield from check_ends(step_name, steps, lambda: _ends_ever(envs))
    yield from _limits(steps, limited, told=limit is not None)
    yield from remarks(spec, steps)
    yield from _flags(found, several)
    yield from _recompiles(found, several)
    if not several:
        yield from _spaces(found)
    other = getattr(found.env, "twin", None) if twin is None else user_code.find(twin, "world")
    if other is not None:
        for kind, sentence in twin_check.compare(found, several, _made_with(other, kwargs), twin or f"{name}'s twin"):
            yield Finding(kind, sentence)


def _made_with(twin: Any, kwargs: tuple[str, ...]) -> Any:
    """A twin that is made with the arguments of its world; one that is made already stays what it is."""
    if not kwargs or not (inspect.isclass(twin) or inspect.isroutine(twin)):
        return twin
    given = arguments(kwargs)

    def make() -> Any:
        return twin(**given)

    return make


def _limit(found: gymnax_world.Environment) -> Callable[[Any], jax.Array] | None:
    """bool [N] from the worlds' states: what `is_truncated` says of them; None if there is no such function."""
    return (
        jax.vmap(lambda state: jnp.asarray(found.env.is_truncated(state, found.params), bool))
        if found.truncates
        else None
    )


def _play(envs: Envs, key: jax.Array, limit: Callable[[Any], jax.Array] | None) -> tuple[jax.Array, Step, jax.Array]:
    """Random actions: frames and steps, leaves [T, …], and where the time limit is reached, whatever else is."""
    state, frames = envs.reset(keys.reset_keys(key, NUM_ENVS))

    def one(carry: Any, t: jax.Array) -> tuple[Any, Any]:
        state, frames = carry
        actions = _draw_actions(envs.spec, frames, keys.address(key, t, 0, keys.Stream.ACT))
        state, step = envs.step(keys.step_keys(key, t, NUM_ENVS), state, actions)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            limited = limit(state.world) if limit else jnp.zeros_like(step.truncated)
        return (state, step.frame), (step, limited)

    _, (steps, limited) = jax.lax.scan(one, (state, frames), jnp.arange(STEPS))
    return jnp.concatenate([frames[None], steps.frame]), steps, limited


def _draw_actions(spec: EnvSpec, frames: jax.Array, key: jax.Array) -> jax.Array:
    """int32 [N], or [A, N]: random actions, of those that are available if the frames tell."""
    lead = frames.shape[: frames.ndim - len(spec.shape)]
    uniforms = jax.random.uniform(key, (*lead, spec.actions))
    if spec.masked:
        uniforms = jnp.where(available(spec, frames), uniforms, -1.0)
    return uniforms.argmax(-1).astype(jnp.int32)


def _draws_elsewhere(found: Any, several: bool) -> str:
    """A sentence if a world draws numbers that do not come from its key, or changes something outside its state."""
    key, given = jax.random.key(0), () if several else (found.params,)
    begin = "reset" if several else "reset_env"
    reset = getattr(found.env, begin)
    action: Any = dict.fromkeys(found.agents, jnp.int32(0)) if several else jnp.int32(0)

    def begun(key: Any) -> Any:
        return reset(key, *given)

    def step(key: Any, state: Any, action: Any) -> Any:
        return found.env.step_env(key, state, action, *given)[:4]

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        state = jax.eval_shape(begun, key)[1]
        called: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
            (begin, begun, (key,)),
            ("step_env", step, (key, state, action)),
        ]
        for function, call, given_now in called:
            if differs_traced_again(call, *given_now):
                return f"`{function}` draws random numbers without its key, such as by `np.random`, or {IMPURE}"
    return ""


def _limits(steps: Step, limited: np.ndarray, told: bool) -> Iterator[Finding]:
    """Check how time limits are told; `told`: by `is_truncated`, which was true in the steps `limited`."""
    if not steps.is_first.any() or (steps.truncated & ~steps.terminated).any():
        return
    if not told:
        yield noted("no episode was truncated: a time limit, if there is one, counts as a termination")
    elif (limited & steps.terminated).any():
        yield noted(
            "`is_truncated` is true only where done is true as well, so no episode counts as cut off: leave the limit "
            "out of done"
        )


def _flags(found: Any, several: bool) -> Iterator[Finding]:
    """Check that done is a flag."""

    def done(key: jax.Array) -> Any:
        if several:
            return found.env.step_env(key, found.env.reset(key)[1], dict.fromkeys(found.agents, jnp.int32(0)))[3]
        state = found.env.reset_env(key, found.params)[1]
        return found.env.step_env(key, state, jnp.int32(0), found.params)[3]

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        kinds = {np.dtype(leaf.dtype) for leaf in jax.tree.leaves(jax.eval_shape(done, jax.random.key(0)))}
    for kind in sorted(kinds, key=str):
        if kind.kind == "f":
            yield noted(f"`step_env` returns {kind} as done: any number but 0 ends an episode")


def _ends_ever(envs: Envs) -> bool:
    def one(carry: Any) -> Any:
        state, frames, t, _ = carry
        actions = _draw_actions(envs.spec, frames, keys.address(keys.root(0), t, 0, keys.Stream.ACT))
        state, step = envs.step(keys.step_keys(keys.root(0), t, NUM_ENVS), state, actions)
        return state, step.frame, t + 1, step.is_first.any()

    begin = *envs.reset(keys.reset_keys(keys.root(0), NUM_ENVS)), jnp.int32(0), jnp.bool_(False)
    return bool(jax.jit(lambda c: jax.lax.while_loop(lambda c: (c[2] < LONGEST) & ~c[3], one, c))(begin)[3])


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
    if space is None:
        yield noted("there is no `observation_space`, so observations were not compared with one")
        return
    if not hasattr(space, "low"):
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
