"""All states and edges of a world in which objects are built step by step, for exact evaluation.

Shapes: D numbers in a state, A forward actions, the last of which is stop; N states; B states in a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.types import Array
from xladder.worlds.flow import AT_ONCE, NOTHING, BoundWorld, Enumeration
from xladder.worlds.flow_jitted import JittedHost


class Edges(NamedTuple):
    """The edges of some states."""

    forward_mask: Array  # bool [B, A]
    backward_mask: Array  # bool [B, A − 1]
    after: Array  # int32 [B, A − 1, D]; arbitrary where an action is not allowed
    before: Array  # int32 [B, A − 1, D]; arbitrary where there is no such edge


@lru_cache(maxsize=8)
def edges_of(world: BoundWorld) -> Callable[[np.ndarray], Edges]:
    """A function from states int32 [B, D] to their edges, compiled for few batch sizes."""

    @jax.jit
    def look(states: jax.Array) -> Edges:
        actions = jnp.arange(world.num_actions - 1)

        def one(state: jax.Array) -> Edges:
            after, before = (jax.vmap(step, (None, 0))(state, actions) for step in (world.forward, world.backward))
            return Edges(world.forward_mask(state), world.backward_mask(state), after, before)

        return jax.vmap(one)(states)

    device = jax.local_devices(backend="cpu")[0]
    most = max(64, AT_ONCE // max(1, world.num_actions * world.state_size // 32))

    def edges(states: np.ndarray) -> Edges:
        found = []
        for begin in range(0, len(states), most):
            part = states[begin : begin + most]
            room = min(most, max(64, 1 << (len(part) - 1).bit_length()))
            padded = np.concatenate([part, np.repeat(part[:1], max(0, room - len(part)), axis=0)])
            with jax.default_device(device):
                found.append([np.asarray(x)[: len(part)] for x in look(padded)])
        return Edges(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    return edges


def find_states(world: BoundWorld, most: int) -> np.ndarray | None:
    """int32 [N, D]: all reachable states, the initial one first; None if there are more than `most`."""
    find_edges = edges_of(world)
    width = 4 * world.state_size  # bytes of a state
    new = [np.asarray(world.initial(), np.int32).tobytes()]
    known = dict.fromkeys(new)
    while new:
        edges = find_edges(np.frombuffer(b"".join(new), np.int32).reshape(-1, world.state_size))
        reached = np.ascontiguousarray(edges.after[edges.forward_mask[:, :-1]], np.int32).tobytes()
        new = sorted({reached[i : i + width] for i in range(0, len(reached), width)} - known.keys())
        known |= dict.fromkeys(new)
        if len(known) > most:
            return None
    return np.frombuffer(b"".join(known), np.int32).reshape(-1, world.state_size)


def enumerate_edges(world: BoundWorld, states: np.ndarray) -> Enumeration:
    """Enumerate a world whose states are int32 [N, D]; modes are the objects with the highest reward."""
    find_edges, place = edges_of(world), finder(states)
    count, moves = len(states), world.num_actions - 1
    children, parents = np.full((2, count, moves), count, np.int32)
    terminal = np.zeros(count, bool)
    for begin in range(0, count, AT_ONCE):  # the neighbours of all states at once would not fit into memory
        rows = slice(begin, begin + AT_ONCE)
        edges = find_edges(states[rows])
        forward, backward = edges.forward_mask[:, :-1], edges.backward_mask
        children[rows][forward] = place(edges.after[forward])
        parents[rows][backward] = place(edges.before[backward])
        terminal[rows] = edges.forward_mask[:, -1]
    log_rewards = np.full(count, NOTHING)
    host = JittedHost(world)
    objects = np.flatnonzero(terminal)
    for begin in range(0, len(objects), AT_ONCE):
        part = objects[begin : begin + AT_ONCE]
        log_rewards[part] = host.log_reward(states[part])
    modes = best_objects(log_rewards, terminal)
    return Enumeration(states, terminal, log_rewards, children, parents, sort_levels(children), modes, place)


def best_objects(log_rewards: np.ndarray, terminal: np.ndarray) -> np.ndarray:
    """bool [N]: the objects with the highest reward, but for rounding; `terminal` says which states are objects."""
    finite = log_rewards[terminal & np.isfinite(log_rewards)]  # what is not is found by the check of the world
    best = finite.max(initial=NOTHING)
    return terminal & (log_rewards >= best - max(1e-4, 1e-6 * abs(best)))


def finder(states: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function that maps states int [B, D] to their indices among `states`, int64 [B]; N for an unknown one."""
    low, spans = states.min(0), np.ptp(states, axis=0).astype(np.int64) + 1
    if np.log2(spans.astype(float)).sum() < 62:
        strides = np.append(np.cumprod(spans[:0:-1])[::-1], 1).astype(np.int64)

        def key(some: np.ndarray) -> np.ndarray:
            return ((some - low).astype(np.int64) * strides).sum(-1)

        keys = key(states)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]

        def look_up(some: np.ndarray) -> np.ndarray:
            inside = ((some >= low) & (some < low + spans)).all(-1)
            at = np.minimum(np.searchsorted(ordered, key(some)), len(ordered) - 1)
            return np.where(inside & (ordered[at] == key(some)), order[at], len(states))

        return look_up

    known = {state.tobytes(): number for number, state in enumerate(states)}

    def look_up_bytes(some: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(some, states.dtype)
        return np.array([known.get(row.tobytes(), len(states)) for row in rows], np.int64)

    return look_up_bytes


def sort_levels(children: np.ndarray) -> np.ndarray:
    """int32 [L, W]: states by the length of the longest path to them, without those on a cycle or behind one."""
    count = len(children)
    waiting = np.bincount(children[children < count], minlength=count)
    layers = [np.flatnonzero(waiting == 0)]
    while True:
        after = children[layers[-1]]
        reached = after[after < count]
        waiting -= np.bincount(reached, minlength=count)
        ready = np.unique(reached)
        ready = ready[waiting[ready] == 0]
        if not len(ready):
            break
        layers.append(ready)
    levels = np.full((len(layers), max(map(len, layers))), count, np.int32)
    for row, layer in zip(levels, layers, strict=True):
        row[: len(layer)] = layer
    return levels
