"""A custom `FlowWorld` as the GFlowNet family sees it: in JAX, with integer vectors as states.

Shapes: D numbers in a state, A forward actions, the last of which is stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.caching import cached_by_identity
from xladder.errors import UsageError, brief
from xladder.worlds.flow import BoundWorld, Enumeration, FlowWorld, HostWorld, Sampler, State, WeightedHost
from xladder.worlds.flow_jitted import JittedHost
from xladder.worlds.flow_settings import MOST_STATES
from xladder.worlds.flow_states import enumerate_edges, find_states

CHARTED_AT_ONCE = 4096  # states whose charts are added up in one step
MOST_FOUND = 2**16  # states to search for from the initial state on, if a world does not list them


class OwnWorld(BoundWorld):
    """A custom `FlowWorld` as a `BoundWorld`: flattens states, handles stop and converts types."""

    def __init__(self, world: FlowWorld):
        self.world = world
        with jax.ensure_compile_time_eval():  # this may run while a program is traced
            first = jax.tree.map(np.asarray, world.initial())
        leaves, self._tree = jax.tree.flatten(first)
        self._leaves = [(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype)) for leaf in leaves]
        self._flat = isinstance(first, np.ndarray) and first.ndim == 1 and first.dtype == np.int32
        self._initial = np.concatenate([leaf.ravel().astype(np.int32) for leaf in leaves])
        self._ends = np.cumsum([int(np.prod(shape)) for shape, _ in self._leaves])
        self.state_size = int(self._ends[-1])
        self.num_actions, self.max_steps = int(world.num_actions), int(world.max_steps)
        self.min_steps, self.num_terms = int(world.min_steps), int(world.num_terms)
        self.modes_counted, self.chart_text, self.chart_axes = world.modes_counted, world.chart_text, world.chart_axes
        encoded = jax.eval_shape(self.encode, jax.ShapeDtypeStruct((self.state_size,), jnp.int32))
        whole = jnp.issubdtype(encoded.dtype, jnp.integer)
        self.num_inputs = int(world.num_inputs or 0) if whole else encoded.shape[0]
        self.num_tokens, self.actions_per_token = encoded.shape[0] if whole else 0, world.actions_per_token

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

    def log_terms(self, state: jax.Array) -> jax.Array:
        """float32 [K]: the logarithms of the rewards that can be weighted."""
        return jnp.asarray(self.world.log_terms(self.unflatten(state)), jnp.float32)

    def near_modes(self, state: jax.Array) -> jax.Array:
        """bool [M]: for which of its modes an object counts."""
        return self.world.near_modes(self.unflatten(state))

    def metric_texts(self) -> Mapping[str, str]:
        """Metrics of the world's own → what each is."""
        return self.world.metric_texts

    def metrics(self, sampler: Sampler) -> Mapping[str, jax.Array]:
        """The metrics of the world's own."""
        return self.world.metrics(_Unflattened(self, sampler))

    def table(self, states: np.ndarray) -> Mapping[str, np.ndarray]:
        """Columns [B] that describe states int32 [B, D]: the world's own, or their numbers."""
        objects = jax.tree.map(np.asarray, jax.vmap(self.unflatten)(jnp.asarray(states)))
        return self.world.table_columns(objects) or super().table(states)

    def log_z(self) -> float | None:
        """The logarithm of the sum of all rewards: what the world knows, or from the enumeration."""
        known = self.world.known_log_z()
        return super().log_z() if known is None else known

    def num_modes(self) -> int | None:
        """Number of modes: the objects with the highest reward, or those that are counted if not all are listed."""
        found = super().num_modes()
        return self.modes_counted or None if found is None else found

    def target_picture(self, exact: bool) -> np.ndarray | None:
        """float64 [H, W]: the mean chart of the target, from the enumeration or as the world knows it."""
        if not self.chart_text:
            return None
        known = self.enumeration()
        if known is None:
            return self.world.known_chart()
        with jax.ensure_compile_time_eval():
            p = jnp.asarray(np.exp(known.log_target), jnp.float32)
            return np.asarray(jax.jit(self.marginal)(p, jnp.asarray(known.states)), np.float64)

    def image(self, state: np.ndarray) -> np.ndarray | None:
        """float [H, W]: a picture of an object; None if objects are not drawn."""
        with jax.ensure_compile_time_eval():
            return self.world.image(jax.tree.map(np.asarray, self.unflatten(jnp.asarray(state, jnp.int32))))

    def marginal(self, p: jax.Array, states: jax.Array) -> jax.Array | None:
        """float32 [H, W]: the mean chart, from the probability of all states; None if there is none."""
        if not self.chart_text:
            return None
        # Some states at a time: all charts at once would not fit into memory.
        size = min(CHARTED_AT_ONCE, len(states))
        padding = -len(states) % size
        parts = jnp.pad(p, (0, padding)).reshape(-1, size), jnp.pad(states, ((0, padding), (0, 0)))

        def add(total: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            return total + jnp.tensordot(part[0], self._charts(part[1]), 1), None

        nothing = jnp.zeros(jax.eval_shape(self._charts, states[:1]).shape[1:], jnp.float32)
        return jax.lax.scan(add, nothing, (parts[0], parts[1].reshape(-1, size, states.shape[1])))[0]

    def histogram(self, objects: jax.Array) -> jax.Array | None:
        """float32 [H, W]: the mean chart of objects; None if there is none."""
        return self._charts(objects).mean(0) if self.chart_text else None

    def _charts(self, states: jax.Array) -> jax.Array:
        return jax.vmap(lambda state: self.world.chart(self.unflatten(state)).astype(jnp.float32))(states)

    def enumeration(self) -> Enumeration | None:
        """All states, listed by the world or found by search; None if there are too many."""
        return self._enumeration

    @cached_property
    def _enumeration(self) -> Enumeration | None:
        with jax.ensure_compile_time_eval():
            return self._enumerate()

    def _enumerate(self) -> Enumeration | None:
        try:
            listed = self.world.states()
        except (Exception, SystemExit) as error:
            raise UsageError(f"`states` fails: {brief(error)}.") from error
        if listed is None:
            states = find_states(self, MOST_FOUND)
            return None if states is None else enumerate_edges(self, states)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(listed)]
        if (
            not leaves
            or any(leaf.ndim < 1 or leaf.dtype.kind not in "biu" for leaf in leaves)
            or len({len(leaf) for leaf in leaves}) > 1
        ):
            kinds = ", ".join(f"{leaf.dtype} {list(leaf.shape)}" for leaf in leaves) or "nothing"
            raise UsageError(
                f"`states` gives {kinds}, but it has to be all states, stacked along a first axis, or None."
            )
        states = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1).astype(np.int32)
        if len(states) > MOST_STATES or states.shape[1] != self.state_size:
            raise UsageError(
                f"`states` lists {len(states):,} states of {states.shape[1]} numbers, "
                f"but a state has {self.state_size}, and at most {MOST_STATES:,} can be listed: return None instead."
            )
        return enumerate_edges(self, states)


class _Unflattened:
    """A sampler whose objects are the world's own states."""

    def __init__(self, world: OwnWorld, sampler: Sampler):
        self._world, self._sampler = world, sampler

    def sample(self, count: int, number: int = 0) -> State:
        """Objects that the policy builds."""
        return jax.vmap(self._world.unflatten)(self._sampler.sample(count, number))

    def distribution(self) -> tuple[State, jax.Array] | None:
        """All states and their log-probabilities, float32 [N]; None unless evaluation is exact."""
        found = self._sampler.distribution()
        return found and (jax.vmap(self._world.unflatten)(found[0]), found[1])

    def log_probability(self, objects: State, ways: int = 10) -> jax.Array:
        """float32 [B]: log-probability of objects."""
        leaves = jax.tree.leaves(objects)
        if all(isinstance(leaf, np.ndarray) for leaf in leaves):
            flat = [leaf.reshape(len(leaf), -1).astype(np.int32) for leaf in leaves]
            return self._sampler.log_probability(np.concatenate(flat, axis=1), ways)
        return self._sampler.log_probability(jax.vmap(self._world.flatten)(objects), ways)


def host_of(world: OwnWorld) -> HostWorld:
    """The world's twin in NumPy; the JAX world stepped from the host if it has none, or one without reward terms."""
    twin = world.world.host_twin()
    if twin is None or (world.num_terms and not isinstance(twin, WeightedHost)):
        return JittedHost(world)
    return twin


@cached_by_identity
def bind(world: FlowWorld) -> OwnWorld:
    """Bind a custom world; cached by object."""
    return OwnWorld(world)
