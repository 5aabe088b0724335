"""Checks of a user's own world, each fault as a sentence.

`check_world` reports all faults it finds; a world with any fault is refused before anything is written. First it checks
the methods by themselves (they run inside `jit`, shapes and types fit), then their results (masks, steps and their
inverses, lengths, rewards) on every state if there are few enough, or else on the states of random trajectories.

Shapes: B states, D numbers in a state, A forward actions, the last of which is stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.caching import cached_by_identity
from xladder.errors import UsageError, located, untraceable
from xladder.families.gflownet.optional_check import absent_methods, optional_faults
from xladder.families.gflownet.twin_check import twin_faults
from xladder.worlds.flow import BoundWorld, Enumeration, FlowWorld
from xladder.worlds.flow_jitted import JittedHost
from xladder.worlds.flow_names import load_once
from xladder.worlds.flow_own import OwnWorld, bind
from xladder.worlds.flow_states import Edges, edges_of
from xladder.worlds.jax_checks import IMPURE, differs_traced_again
from xladder.worlds.own_rewards import MOST_LOG_REWARD

WALKS, MOST_WALKED = 64, 1000  # random trajectories in a world with too many states, and their maximum length
MOST_STEPS = 2**15  # of a trajectory: each step takes a row in the program
WIDE = 1000.0  # a range of log-rewards that is rarely meant


@lru_cache(maxsize=16)
def faults_of(name: str) -> tuple[str, ...]:
    """The faults of the world `flow/NAME`, each starting with the world's name."""
    world = load_once(name)
    return tuple(f"`{name}`: {fault}" for fault in _faults(world))


def remarks_on(name: str) -> Iterator[str]:
    """What is allowed in the world `flow/NAME`, which has no faults, but rarely meant."""
    world = bind(load_once(name))
    known = world.enumeration()
    states = walk(world) if known is None else known.states
    host = JittedHost(world)
    rewards = host.call("log_reward", states[host.forward_mask(states)[:, -1]])
    if len(rewards) > 1 and np.ptp(rewards) == 0:
        yield f"`log_reward` is {rewards.flat[0]:g} for every object tried: all are to be sampled equally often"
    elif len(rewards) and np.ptp(rewards) > WIDE:
        yield (
            f"`log_reward` lies between {rewards.min():g} and {rewards.max():g}: the rewards differ by a factor of "
            f"e^{np.ptp(rewards):.0f}. It has to be the logarithm of the reward"
        )


def check_world(world: FlowWorld) -> list[str]:
    """The faults of a world, one sentence each; an empty list if there are none."""
    return list(_faults(world))


@cached_by_identity
def _faults(world: FlowWorld) -> list[str]:
    faults = list(absent_methods(world)) or list(_methods(world))
    if faults:
        return faults
    bound = bind(world)
    try:
        known = bound.enumeration()
        states = known.states if known is not None else walk(bound)
    except UsageError as error:
        return [str(error)]
    except Exception as error:
        fault = untraceable(error)
        return [f"it {fault}." if fault else f"random steps fail: {located(error)}."]
    host = JittedHost(bound)
    try:
        faults = [*_states(bound, host, states, known), *twin_faults(world, host, states)]
        if not faults:
            faults += optional_faults(bound, states[host.forward_mask(states)[:, -1]], known)
    except Exception as error:
        if fault := untraceable(error):  # only a second trace fails, such as one that reads what the first has left
            return [f"it {fault}."]
        raise
    if known is None:
        return faults
    if not faults:
        placed = known.levels < len(known.states)
        if placed.sum() < len(known.states):
            cycle = np.setdiff1d(np.arange(len(known.states)), known.levels[placed])[0]
            faults.append(f"there is a cycle, near state {show(known.states[cycle])}: steps have to lead onwards.")
        elif len(known.levels) > bound.max_steps:
            faults.append(
                f"a trajectory can have {len(known.levels)} steps, stop included, but `max_steps` is {bound.max_steps}."
            )
    return faults


def _methods(world: FlowWorld) -> Iterator[str]:
    """Check that every method runs inside `jit` and returns the right shapes, in the initial state."""
    fields = [("num_actions", 2), ("max_steps", 1), ("min_steps", 1), ("num_inputs", 1), ("num_terms", 0)]
    for field, least in fields:
        try:
            value: Any = getattr(world, field, None)
        except (Exception, SystemExit) as error:
            yield f"`{field}` fails: {located(error)}."
            return
        if field == "num_inputs" and value is None:
            continue
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            yield f"`{field}` is {value!r}, but it has to be a whole number, {least} or more."
            return
    if world.max_steps > MOST_STEPS:
        yield f"`max_steps` is {world.max_steps}, but at most {MOST_STEPS} are possible."
        return
    try:
        first = world.initial()
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(first)]
    except (Exception, SystemExit) as error:
        yield f"`initial` fails: {located(error)}."
        return
    if not leaves or any(leaf.dtype.kind not in "biu" or not leaf.size for leaf in leaves):
        kinds = ", ".join(f"{leaf.dtype} {list(leaf.shape)}" for leaf in leaves) or "nothing"
        yield f"`initial` gives {kinds}, but a state has to be an array of whole numbers, or several."
        return
    if any(leaf.min() < -(2**31) or leaf.max() >= 2**31 for leaf in leaves):
        yield "`initial` has numbers outside [−2³¹, 2³¹): states are kept as int32."
        return
    state = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), first)
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
    action = jax.ShapeDtypeStruct((), jnp.int32)
    given: dict[str, tuple[Any, ...]] = {
        "forward_mask": (like,),
        "backward_mask": (like,),
        "forward": (like, action),
        "backward": (like, action),
        "encode": (like,),
        "log_reward": (like,),
    }
    if world.num_terms:
        given["log_terms"] = (like,)
    for name, arguments in given.items():
        try:
            found = jax.eval_shape(getattr(world, name), *arguments)
        except (Exception, SystemExit) as error:
            yield f"`{name}` fails inside `jit`: {located(error)}. It has to be pure JAX, for one state."
            continue
        faults = list(_shape(world, name, like, found))
        try:
            if not faults and differs_traced_again(getattr(world, name), *arguments):
                faults = [f"`{name}` draws random numbers, such as by `np.random`, or {IMPURE}."]
        except (Exception, SystemExit) as error:
            faults = [f"`{name}` {untraceable(error) or f'fails when it is traced again: {located(error)}'}."]
        yield from faults


def _shape(world: FlowWorld, name: str, like: Any, found: Any) -> Iterator[str]:
    """Check the shape and dtype of a method's result."""
    kind = _kind(found)
    if name in ("forward", "backward"):
        if _kind(like) != kind or str(jax.tree.structure(like)) != str(jax.tree.structure(found)):
            yield f"`{name}` gives {kind} where a state is {_kind(like)}: it has to keep shape and type."
        return
    if not isinstance(found, jax.ShapeDtypeStruct):
        yield f"`{name}` gives {kind}, but it has to be one array."
    elif name.endswith("mask"):
        size = world.num_actions - (name == "backward_mask")
        if found.shape != (size,) or found.dtype != jnp.bool_:
            why = "one for each action" + (" but stop" if name == "backward_mask" else ", stop last")
            yield f"`{name}` gives {kind}, but it has to be bool [{size}], {why}."
    elif name == "log_reward":
        if found.shape != () or jnp.dtype(found.dtype).kind not in "iuf":
            yield f"`{name}` gives {kind} for one object, but it has to be one float."
    elif name == "log_terms":
        if found.shape != (world.num_terms,) or jnp.dtype(found.dtype).kind not in "iuf":
            yield f"`{name}` gives {kind} for one object, but it has to be float [{world.num_terms}] (`num_terms`)."
    elif jnp.issubdtype(found.dtype, jnp.integer) and not world.num_inputs:
        yield "`encode` gives whole numbers, the active inputs: `num_inputs` has to say how many inputs there are."
    elif jnp.dtype(found.dtype).kind not in "biuf" or 0 in found.shape:
        yield f"`encode` gives {kind}, but it has to be numbers."


def _kind(tree: Any) -> str:
    return ", ".join(f"{leaf.dtype} {list(leaf.shape)}" for leaf in jax.tree.leaves(tree)) or "nothing"


def _states(world: OwnWorld, host: JittedHost, states: np.ndarray, known: Enumeration | None) -> Iterator[str]:
    """Check that masks, steps, encoding and rewards of states int32 [B, D] are consistent."""
    edges = edges_of(world)(states)
    first = np.asarray(world.initial())
    stuck = ~edges.forward_mask.any(1)
    if stuck.any():
        yield f"`forward_mask` allows nothing in state {show(states[stuck][0])}: every state needs an action, or stop."
    rootless = ~edges.backward_mask.any(1) & (states != first).any(1)
    if rootless.any():
        yield f"`backward_mask` allows nothing in state {show(states[rootless][0])}, which is not the initial one."
    if edges_of(world)(first[None]).backward_mask.any():
        yield f"`backward_mask` allows a step back from the initial state {show(first)}."
    yield from _inverses(world, states, edges, known)
    if known is not None:  # the search is complete, but the user's list may not be
        lost = (known.children == len(states)) & edges.forward_mask[:, :-1]
        if lost.any():
            yield f"`states` does not list {show(edges.after[lost][0])}, to which `forward` leads."
        if len(np.unique(known.place(states))) < len(states):
            yield "`states` lists some states more than once."
        yield from _unreached(world, first, known)
    terminal = states[edges.forward_mask[:, -1]]
    if not len(terminal):
        yield "stop is allowed nowhere: the last entry of `forward_mask` is never true."
        return
    for name in ("log_reward", *["log_terms"] * bool(world.num_terms)):
        rewards = host.call(name, terminal).reshape(len(terminal), -1)
        bad = ~np.isfinite(rewards).all(1)
        if bad.any():
            which = "every object tried" if bad.all() else f"{bad.sum():,} of {len(bad):,}"
            value = rewards[bad][0][~np.isfinite(rewards[bad][0])][0]
            yield (
                f"`{name}` gives {value:g} for the object {show(terminal[bad][0])}, and nothing finite for {which}: "
                "the logarithm of every reward has to be finite."
            )
        elif (largest := np.abs(rewards).max()) > MOST_LOG_REWARD:
            yield (
                f"`{name}` goes up to {largest:g} in size, and {MOST_LOG_REWARD:g} is possible: a loss squares it. It "
                "has to be the logarithm of the reward."
            )
    seen = host.encode(states)
    if seen.dtype.kind == "i" and ((seen < 0) | (seen >= world.num_inputs)).any():
        odd = ((seen < 0) | (seen >= world.num_inputs)).any(1)
        inputs = f"{world.num_inputs} inputs (`num_inputs`)"
        yield f"`encode` gives {show(seen[odd][0])} for state {show(states[odd][0])}, and there are {inputs}."
    elif not np.isfinite(seen).all():
        yield f"`encode` gives no finite numbers for state {show(states[~np.isfinite(seen).all(1)][0])}."


def _unreached(world: OwnWorld, first: np.ndarray, known: Enumeration) -> Iterator[str]:
    """Check that every state of a list can be reached from the initial one."""
    count, begin = len(known.states), int(known.place(first[None])[0])
    if begin == count:
        yield f"`states` does not list the initial state {show(first)}."
        return
    reached, new, steps = np.zeros(count + 1, bool), np.array([begin]), 1
    reached[count] = True  # stands for actions that are not allowed
    while len(new):
        if steps < world.min_steps and known.terminal[new].any():
            yield _too_short(world, steps)
            return
        steps += 1
        reached[new] = True
        after = np.unique(known.children[new])
        new = after[~reached[after]]
    if not reached.all():
        lost = np.flatnonzero(~reached)
        more = f" and {len(lost) - 1:,} more" if len(lost) > 1 else ""
        yield f"`states` lists {show(known.states[lost[0]])}{more}, to which no steps from the initial state lead."


def _too_short(world: BoundWorld, steps: int) -> str:
    return f"a trajectory can have {steps} steps, stop included, but `min_steps` is {world.min_steps}."


def _inverses(world: OwnWorld, states: np.ndarray, edges: Edges, known: Enumeration | None) -> Iterator[str]:
    """Check that the same action undoes every step, in both directions."""
    look = edges_of(world)
    ways = [
        ("forward", "backward", edges.forward_mask[:, :-1], edges.after),
        ("backward", "forward", edges.backward_mask, edges.before),
    ]
    for one, other, mask, reached in ways:
        who, action = np.nonzero(mask)
        if known is not None:  # all edges are there already: only one that looks wrong is looked at
            to, back_to = (known.children, known.parents) if one == "forward" else (known.parents, known.children)
            reached_state = np.minimum(to[who, action], len(states) - 1)
            odd = np.flatnonzero((to[who, action] == len(states)) | (back_to[reached_state, action] != who))[:1]
            who, action = who[odd], action[odd]
        for begin in range(0, len(who), 2**14):
            part = slice(begin, begin + 2**14)
            there = reached[who[part], action[part]]
            said = look(there)
            back = (said.backward_mask, said.before) if one == "forward" else (said.forward_mask, said.after)
            allowed, returned = (x[np.arange(len(there)), action[part]] for x in back)
            wrong = np.flatnonzero(~allowed | (returned != states[who[part]]).any(1))
            if not len(wrong):
                continue
            i = wrong[0]
            state, step = show(states[who[part]][i]), f"action {action[part][i]} of `{one}`"
            if not allowed[i]:
                yield f"{step} leads from {state} to {show(there[i])}, where `{other}_mask` does not allow it."
            else:
                yield (
                    f"`{other}` is not the inverse of `{one}`: {step} leads from {state} to {show(there[i])}, and back "
                    f"to {show(returned[i])}."
                )
            break


def find_incomplete(world: BoundWorld) -> str:
    """A state in which stop is not allowed, as text; empty if there is none among all, or on random trajectories."""
    known = world.enumeration()
    states = walk(world) if known is None else known.states
    terminal = JittedHost(world).forward_mask(states)[:, -1] if known is None else known.terminal
    return "" if terminal.all() else show(states[~terminal][0])


def find_unrewarded(world: BoundWorld) -> str:
    """An incomplete state whose log-reward is not finite, and that log-reward, as text; empty if there is none."""
    known = world.enumeration()
    states = walk(world) if known is None else known.states
    log_rewards = JittedHost(world).log_reward(states)
    bad = np.flatnonzero(~np.isfinite(log_rewards))
    return f"{show(states[bad[0]])} is {log_rewards[bad[0]]:g}" if len(bad) else ""


def walk(world: BoundWorld) -> np.ndarray:
    """int32 [B, D]: the states of random trajectories; a `UsageError` if one exceeds `max_steps`."""
    rng, host = np.random.default_rng(0), JittedHost(world)
    state, found = host.initial(WALKS), []
    for _ in range(min(world.max_steps, MOST_WALKED)):
        found.append(state)
        moves = host.forward_mask(state)[:, :-1]
        if len(found) < world.min_steps and host.forward_mask(state)[:, -1].any():
            raise UsageError(_too_short(world, len(found)))
        if not moves.any():
            break
        action = np.where(moves, rng.random(moves.shape), -1.0).argmax(1)
        state = host.forward(state, np.where(moves.any(1), action, world.num_actions - 1))
    else:
        if world.max_steps <= MOST_WALKED:
            raise UsageError(
                f"random steps have not come to an end after `max_steps` ({world.max_steps}) of them: {show(state[0])} "
                "allows more."
            )
    return np.unique(np.concatenate(found), axis=0).astype(np.int32)


def show(numbers: np.ndarray) -> str:
    """A state as text, for error messages."""
    shown = ", ".join(map(str, numbers[:20].tolist()))
    return f"[{shown}{', …' if len(numbers) > 20 else ''}]"
