"""Worlds in which objects are built step by step, for GFlowNets. A custom world is a subclass of `FlowWorld`.

    class Subsets(FlowWorld):                             # choose some of 6 items
        num_actions, max_steps = 7, 7                     # take item 0 … 5, or stop

        def initial(self):
            return jnp.zeros(6, jnp.int32)

        def forward_mask(self, state):                    # bool [7]: the last is stop
            return jnp.append(state == 0, True)

        def backward_mask(self, state):                   # bool [6]: which actions may have led here
            return state == 1

        def forward(self, state, action):
            return state.at[action].set(1)

        def backward(self, state, action):
            return state.at[action].set(0)

        def log_reward(self, state):
            return -0.5 * (state.sum() - 3.0) ** 2

`xladder train flow/my_worlds:Subsets` trains on it on any rung, `plan("flow/my_worlds:Subsets")` does so in Python, and
`for_object(Subsets())` gives an object that exists only in Python a name that can be trained.

The rest of this module is the GFlowNet family's view of such a world: `BoundWorld`, whose states are integer vectors,
its batched version on the host (`HostWorld`), and all its states and edges (`Enumeration`), for exact evaluation.

Shapes: D numbers in a state, A forward actions, the last of which is stop; N states; B states in a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code
from xladder.core.types import Array
from xladder.errors import UsageError
from xladder.worlds.flow_settings import MOST_STATES

MOST_FOUND = 2**16  # states to search for from the initial state on, if a world does not list them
AT_ONCE = 2**14  # states whose edges are computed in one batch
NOTHING = -1e30  # log-probability of the impossible, finite so that differences are numbers
State = Any
"""An integer array, or a pytree of them, always of the same shapes."""


class FlowWorld(ABC):
    """Base class of custom worlds. Every method is pure JAX for a single state; callers vmap it.

    A trajectory begins in `initial()`, takes forward actions that `forward_mask` allows, and ends with the last action,
    stop: the object is the state at that time. Stop does not change the state, and `forward` is not called for it.
    Where objects have to be complete, `forward_mask` allows stop in complete states only, and nothing else there.

    Backward action `a` undoes forward action `a`: `backward(forward(state, a), a)` is `state`. Several actions may lead
    to the same state, even from the same parent: every action is an edge of its own, and `backward_mask` says which
    edges lead to a state. Only the initial state has none.
    """

    num_actions: int
    """Number of forward actions, A, including stop, which is the last."""
    max_steps: int
    """Steps of the longest trajectory, including stop."""
    num_inputs: int | None = None
    """Number of one-hot inputs, if `encode` returns integers."""

    @abstractmethod
    def initial(self) -> State:
        """The initial state: an integer array of any fixed shape (a vector is fastest), or a pytree of them."""

    @abstractmethod
    def forward_mask(self, state: State) -> jax.Array:
        """bool [A]: which forward actions are allowed in a state; at least one."""

    @abstractmethod
    def backward_mask(self, state: State) -> jax.Array:
        """bool [A − 1]: which actions may have led to a state; none for the initial one."""

    @abstractmethod
    def forward(self, state: State, action: jax.Array) -> State:
        """The state after an allowed action, of the same shape and type."""

    @abstractmethod
    def backward(self, state: State, action: jax.Array) -> State:
        """The state before an action that may have led here."""

    @abstractmethod
    def log_reward(self, state: State) -> jax.Array:
        """float []: log-reward of an object, finite wherever stop is allowed.

        Forward-looking balance (`--loss fldb`) also evaluates it for incomplete objects.
        """

    def encode(self, state: State) -> jax.Array:
        """The network's input: float [F], or int [K], the indices of the active inputs of a one-hot encoding.

        The latter is faster and needs `num_inputs`. The default is the state's numbers as they are.
        """
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(state)])

    def states(self) -> State | None:
        """All states, stacked along a first axis [N], for exact evaluation; at most 2²⁰. None if not listed.

        If it is None, up to 65,536 states are searched for from the initial state on.
        """
        return None

    def host_twin(self) -> HostWorld | None:
        """The same world in NumPy, for `torch`, `hybrid` and `sequential`. None: they call this one."""
        return None


class HostWorld(Protocol):
    """A world on the host: NumPy, for a batch of states int [B, D]. See `FlowWorld` for the meaning of its methods."""

    @property
    def state_size(self) -> int:
        """Numbers in a state, D."""

    @property
    def num_actions(self) -> int:
        """Number of forward actions, A."""

    @property
    def max_steps(self) -> int:
        """Steps of the longest trajectory, including stop."""

    @property
    def num_inputs(self) -> int:
        """Number of network inputs."""

    def initial(self, count: int) -> np.ndarray:
        """int [count, D]: initial states."""

    def forward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A]: which forward actions are allowed."""

    def backward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A − 1]: which actions may have led here."""

    def forward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states after actions [B]; stop does not change a state."""

    def backward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The states before actions [B]; stop does not change a state."""

    def encode(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, F], or int64 [B, K]: the indices of the active one-hot inputs."""

    def log_reward(self, states: np.ndarray) -> np.ndarray:
        """float32 [B]: the log-rewards."""


@dataclass(frozen=True)
class Enumeration:
    """All states of a world and their edges. In NumPy, like all full enumerations: XLA is slow at constant folding."""

    states: np.ndarray  # int32 [N, D]
    terminal: np.ndarray  # bool [N]: where stop is allowed
    log_rewards: np.ndarray  # float64 [N]; NOTHING where stop is not allowed
    children: np.ndarray  # int32 [N, A − 1]: the state after each action; N where it is not allowed
    parents: np.ndarray  # int32 [N, A − 1]: the state before each action; N where there is no such edge
    levels: np.ndarray  # int32 [L, W]: states by the longest path to them, so that parents come first; padded with N
    modes: np.ndarray  # bool [N]: modes, which a good sampler should find
    place: Callable[[np.ndarray], np.ndarray]
    """int [B]: the indices of states int [B, D]; N for an unknown one."""

    @cached_property
    def log_z(self) -> float:
        """The logarithm of the sum of all rewards."""
        return float(np.logaddexp.reduce(self.log_rewards[self.terminal]))

    @cached_property
    def log_target(self) -> np.ndarray:
        """float64 [N]: log-probabilities of the target distribution."""
        return np.where(self.terminal, self.log_rewards - self.log_z, NOTHING)


class BoundWorld(ABC):
    """A world as the GFlowNet family uses it: states are int32 [D], and stop does not change them.

    Methods for one state are pure JAX; callers vmap them.
    """

    state_size: int
    """Numbers in a state, D."""
    num_actions: int
    """Number of forward actions, A, including stop, which is the last."""
    max_steps: int
    """Steps of the longest trajectory, including stop."""
    num_inputs: int
    """Number of network inputs: features, or one-hot inputs."""
    below: int | None = None
    """States are integers in [0, below), where that is known."""
    state_name: str = "state"
    """What the numbers of a state are called in tables: state_1, state_2 …"""
    state_words: str = "states"
    """What states are called in error messages."""

    @abstractmethod
    def initial(self) -> jax.Array:
        """int32 [D]: the initial state."""

    @abstractmethod
    def forward_mask(self, state: jax.Array) -> jax.Array:
        """bool [A]: which forward actions are allowed in a state."""

    @abstractmethod
    def backward_mask(self, state: jax.Array) -> jax.Array:
        """bool [A − 1]: which actions may have led to a state."""

    @abstractmethod
    def forward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """The state after an action; stop does not change it."""

    @abstractmethod
    def backward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """The state before an action; stop does not change it."""

    @abstractmethod
    def encode(self, state: jax.Array) -> jax.Array:
        """float32 [F], or int32 [K]: the indices of the active one-hot inputs."""

    @abstractmethod
    def log_reward(self, state: jax.Array) -> jax.Array:
        """float32 []: log-reward of a state in which stop is allowed."""

    # What is known of the target: from the enumeration, unless a world overrides this.

    @abstractmethod
    def enumeration(self) -> Enumeration | None:
        """All states; None if there are too many."""

    def log_z(self) -> float | None:
        """The logarithm of the sum of all rewards; None if unknown."""
        found = self.enumeration()
        return None if found is None else found.log_z

    def num_modes(self) -> int | None:
        """Number of modes; None if unknown."""
        found = self.enumeration()
        return None if found is None else int(found.modes.sum())

    def draw_target(self, key: jax.Array, count: int) -> jax.Array:
        """int32 [count, D]: objects sampled from the target, where it is known."""
        found = self.enumeration()
        assert found is not None, "the target of a world with too many states cannot be sampled"
        sums = np.cumsum(np.exp(found.log_target))
        heights = jnp.asarray(sums / sums[-1], jnp.float32)
        places = jnp.searchsorted(heights, jax.random.uniform(key, (count,)), side="right")
        # Rounding must not lead past the last object, nor to a state that is not one.
        last = int(np.flatnonzero(found.terminal)[-1])
        return jnp.asarray(found.states)[jnp.minimum(places, last)]

    # Figures: the marginal of the first two numbers of a state. Only grids have one.

    def target_picture(self, exact: bool) -> np.ndarray | None:
        """float64 [H, H] or [1, H]: the target's marginal, as coarse as the estimates; None if there is no figure."""
        return None

    def marginal(self, p: jax.Array) -> jax.Array | None:
        """float32 [H, H] or [1, H]: the marginal, from the probability of every state; None if there is no figure."""
        return None

    def histogram(self, objects: jax.Array) -> jax.Array:
        """float32, in the shape of `target_picture(exact=False)`: the histogram of objects [B, D]."""
        raise NotImplementedError


class OwnWorld(BoundWorld):
    """A custom `FlowWorld` as a `BoundWorld`: flattens states, handles stop and converts types."""

    def __init__(self, world: FlowWorld):
        self.world = world
        with jax.ensure_compile_time_eval():  # this may run while a program is traced
            first = jax.tree.map(np.asarray, world.initial())
        leaves, self._tree = jax.tree.flatten(first)
        self._leaves = [(leaf.shape, leaf.dtype) for leaf in leaves]
        self._flat = isinstance(first, np.ndarray) and first.ndim == 1 and first.dtype == np.int32
        self._initial = np.concatenate([leaf.ravel().astype(np.int32) for leaf in leaves])
        self._ends = np.cumsum([int(np.prod(shape)) for shape, _ in self._leaves])
        self.state_size = int(self._ends[-1])
        self.num_actions, self.max_steps = int(world.num_actions), int(world.max_steps)
        encoded = jax.eval_shape(self.encode, jax.ShapeDtypeStruct((self.state_size,), jnp.int32))
        whole = jnp.issubdtype(encoded.dtype, jnp.integer)
        self.num_inputs = int(world.num_inputs or 0) if whole else encoded.shape[0]

    def flatten(self, state: State) -> jax.Array:
        """int32 [D] from the world's own state."""
        if self._flat:
            return state
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.int32) for leaf in jax.tree.leaves(state)])

    def unflatten(self, state: jax.Array) -> State:
        """The world's own state from int32 [D]."""
        if self._flat:
            return state
        parts = jnp.split(state, self._ends[:-1])
        leaves = [part.reshape(shape).astype(kind) for part, (shape, kind) in zip(parts, self._leaves, strict=True)]
        return jax.tree.unflatten(self._tree, leaves)

    def initial(self) -> jax.Array:
        """int32 [D]: the initial state."""
        return jnp.asarray(self._initial)

    def forward_mask(self, state: jax.Array) -> jax.Array:
        """bool [A]: which forward actions are allowed in a state."""
        return self.world.forward_mask(self.unflatten(state))

    def backward_mask(self, state: jax.Array) -> jax.Array:
        """bool [A − 1]: which actions may have led to a state."""
        return self.world.backward_mask(self.unflatten(state))

    def forward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """The state after an action; stop does not change it."""
        return self._step(self.world.forward, state, action)

    def backward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """The state before an action; stop does not change it."""
        return self._step(self.world.backward, state, action)

    def _step(self, step: Callable[..., State], state: jax.Array, action: jax.Array) -> jax.Array:
        stop = self.num_actions - 1
        moved = self.flatten(step(self.unflatten(state), jnp.minimum(action, stop - 1)))
        return jnp.where(action == stop, state, moved)

    def encode(self, state: jax.Array) -> jax.Array:
        """float32 [F], or int32 [K]: the indices of the active one-hot inputs."""
        seen = jnp.ravel(jnp.asarray(self.world.encode(self.unflatten(state))))
        return seen.astype(jnp.int32 if jnp.issubdtype(seen.dtype, jnp.integer) else jnp.float32)

    def log_reward(self, state: jax.Array) -> jax.Array:
        """float32 []: log-reward of a state in which stop is allowed."""
        return jnp.asarray(self.world.log_reward(self.unflatten(state)), jnp.float32)

    def enumeration(self) -> Enumeration | None:
        """All states, listed by the world or found by search; None if there are too many."""
        return self._enumeration

    @cached_property
    def _enumeration(self) -> Enumeration | None:
        with jax.ensure_compile_time_eval():
            return self._enumerate()

    def _enumerate(self) -> Enumeration | None:
        listed = self.world.states()
        if listed is None:
            states = find_states(self, MOST_FOUND)
            return None if states is None else enumerate_edges(self, states)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(listed)]
        states = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1).astype(np.int32)
        if len(states) > MOST_STATES or states.shape[1] != self.state_size:
            raise UsageError(
                f"`states` of {type(self.world).__name__} lists {len(states):,} states of {states.shape[1]} numbers, "
                f"but a state has {self.state_size}, and at most {MOST_STATES:,} can be listed: return None instead."
            )
        return enumerate_edges(self, states)


@lru_cache(maxsize=16)
def bind(world: FlowWorld) -> OwnWorld:
    """Bind a custom world; cached by object."""
    return OwnWorld(world)


class JittedHost:
    """A JAX world on the host: jitted calls on NumPy arrays. Batch sizes are rounded up, so few sizes are compiled."""

    LEAST = 64

    def __init__(self, world: BoundWorld):
        self.state_size, self.num_actions = world.state_size, world.num_actions
        self.max_steps, self.num_inputs = world.max_steps, world.num_inputs
        methods = ("forward_mask", "backward_mask", "forward", "backward", "encode", "log_reward")
        self._methods = {method: jax.jit(jax.vmap(getattr(world, method))) for method in methods}
        self._device = jax.local_devices(backend="cpu")[0]
        with jax.ensure_compile_time_eval():
            self._initial = np.asarray(world.initial())

    def initial(self, count: int) -> np.ndarray:
        """int64 [count, D]: initial states."""
        return np.repeat(self._initial[None].astype(np.int64), count, axis=0)

    def forward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A]: which forward actions are allowed."""
        return self.call("forward_mask", states)

    def backward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A − 1]: which actions may have led here."""
        return self.call("backward_mask", states)

    def forward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """int64 [B, D]: the states after actions [B]; stop does not change a state."""
        return self.call("forward", states, actions).astype(np.int64)

    def backward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """int64 [B, D]: the states before actions [B]."""
        return self.call("backward", states, actions).astype(np.int64)

    def encode(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, F], or int64 [B, K]: the indices of the active one-hot inputs."""
        seen = self.call("encode", states)
        return seen.astype(np.int64) if seen.dtype.kind == "i" else seen

    def log_reward(self, states: np.ndarray) -> np.ndarray:
        """float32 [B]: the log-rewards."""
        return self.call("log_reward", states)

    def call(self, method: str, *given: np.ndarray) -> np.ndarray:
        """Call a method of the world for a batch."""
        count = len(given[0])
        room = max(self.LEAST, 1 << (count - 1).bit_length()) if count else self.LEAST
        first = np.zeros((room - count, *given[0].shape[1:]), np.int32) + self._initial
        rest = [np.zeros((room - count, *array.shape[1:]), np.int32) for array in given[1:]]
        padded = [np.concatenate([a, more]).astype(np.int32) for a, more in zip(given, [first, *rest], strict=True)]
        with jax.default_device(self._device):
            return np.array(self._methods[method](*padded))[:count]  # a writable copy


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
    edges, place = edges_of(world)(states), finder(states)
    count, moves = len(states), world.num_actions - 1
    children, parents = np.full((2, count, moves), count, np.int32)
    forward, backward = edges.forward_mask[:, :-1], edges.backward_mask
    children[forward] = place(edges.after[forward])
    parents[backward] = place(edges.before[backward])
    terminal = edges.forward_mask[:, -1]
    log_rewards = np.full(count, NOTHING)
    host = JittedHost(world)
    objects = np.flatnonzero(terminal)
    for begin in range(0, len(objects), AT_ONCE):
        part = objects[begin : begin + AT_ONCE]
        log_rewards[part] = host.log_reward(states[part])
    best = log_rewards[terminal].max(initial=NOTHING)
    modes = terminal & (log_rewards >= best - 1e-6 * max(1.0, abs(best)))
    return Enumeration(states, terminal, log_rewards, children, parents, sort_levels(children), modes, place)


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


def for_object(world: FlowWorld) -> str:
    """Give a world object a name under which it can be trained in this process, and return it."""
    return f"flow/{user_code.give(world)}"
