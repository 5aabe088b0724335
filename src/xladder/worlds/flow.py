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
`flow_own` and `flow_jitted` make them from a custom world, and `flow_states` finds the states.

Shapes: D numbers in a state, A forward actions, the last of which is stop; N states; B states in a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code

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
    min_steps: int = 1
    """Steps of the shortest trajectory, including stop; if it is given, updates are compiled for fewer sizes."""
    num_inputs: int | None = None
    """Number of one-hot inputs, if `encode` returns integers."""
    actions_per_token: int = 0
    """How many actions belong to each entry of `encode`, in their order; 0 if they belong to the whole state. A
    transformer reads an entry's logits from its own token, and with 0 all logits from one token."""
    num_terms: int = 0
    """Number of reward terms, K, for a sampler of all their weightings (`--learner.condition preferences`)."""
    modes_counted: int = 0
    """Number of modes, M, of which training counts how many were found; `near_modes` says when."""
    metric_texts: Mapping[str, str] = MappingProxyType({})
    """Metrics of the world's own → what each is, in a few words; `metrics` computes them."""
    chart_text: str = ""
    """What `chart` shows, in a few words; empty if there is no chart."""
    chart_axes: tuple[str, str] = ("row", "column")
    """What the rows and the columns of `chart` are."""

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

    def log_terms(self, state: State) -> jax.Array:
        """float [K]: the logarithms of several rewards of an object; needed if `num_terms` is not 0.

        `log_reward` is that of a sampler without weights; the mean of the rewards, say.
        """
        raise NotImplementedError

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
        """The same world in NumPy, for `torch`, `compiled`, `hybrid` and `sequential`. None: they call this one."""
        return None

    # What is published of a world besides the distance to its target: none of it is needed.

    def known_log_z(self) -> float | None:
        """The logarithm of the sum of all rewards, if it is known without enumerating the states."""
        return None

    def near_modes(self, state: State) -> jax.Array:
        """bool [M]: for which of its modes an object counts; needed if `modes_counted` is not 0."""
        raise NotImplementedError

    def metrics(self, sampler: Sampler) -> Mapping[str, jax.Array]:
        """The metrics in `metric_texts`, float [] each, from what a sampler builds. Pure JAX."""
        return {}

    def table_columns(self, objects: State) -> Mapping[str, np.ndarray]:
        """Columns [B] that describe objects, NumPy arrays stacked along a first axis, for `xladder sample`.

        If there are none, the numbers of the states are written.
        """
        return {}

    def chart(self, state: State) -> jax.Array:
        """float [H, W]: features of an object, not negative, whose mean over objects is drawn beside the target's."""
        raise NotImplementedError

    def known_chart(self) -> np.ndarray | None:
        """float [H, W]: the mean of `chart` over the target, if it is known without enumerating the states."""
        return None

    def image(self, state: Any) -> np.ndarray | None:
        """float [H, W]: a picture of any state, given as NumPy arrays. None: objects are not drawn."""
        return None


class Sampler(Protocol):
    """A trained policy, for the metrics of a world. Objects are states of the world, stacked along a first axis."""

    def sample(self, count: int, number: int = 0) -> State:
        """Objects that the policy builds; the same ones for the same `number`."""

    def distribution(self) -> tuple[State, jax.Array] | None:
        """All states and their log-probabilities, float32 [N]; None unless evaluation is exact."""

    def log_probability(self, objects: State, ways: int = 10) -> jax.Array:
        """float32 [B]: log-probability of objects.

        Exact if all states are enumerated and the objects are NumPy arrays. Otherwise the mean of P_F / P_B over
        `ways` backward trajectories from each object, which is exact too where there is but one way back.
        """


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


@runtime_checkable
class WeightedHost(HostWorld, Protocol):
    """A world on the host with several reward terms."""

    def log_terms(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, K]: the logarithms of the rewards."""


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
    def regions(self) -> np.ndarray:
        """int32 [N]: the mode that a state belongs to, K where it belongs to none.

        Neighbouring modes are one: 0 … K − 1 number the groups of mode states that are connected by single steps.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        count, cells = len(self.states), np.flatnonzero(self.modes)
        number = np.full(count + 1, -1)
        number[cells] = np.arange(len(cells))
        after = number[self.children[cells]]  # [M, A − 1]
        begin, action = np.nonzero(after >= 0)
        edges = coo_array((np.ones(len(begin)), (begin, after[begin, action])), shape=(len(cells), len(cells)))
        groups, labels = connected_components(edges, directed=False) if len(cells) else (0, [])
        found = np.full(count, groups, np.int32)
        found[cells] = labels
        return found

    @cached_property
    def num_regions(self) -> int:
        """Number of modes, K, where neighbouring ones are one."""
        return int(self.regions[self.modes].max()) + 1 if self.modes.any() else 0

    @cached_property
    def log_target(self) -> np.ndarray:
        """float64 [N]: log-probabilities of the target distribution."""
        return np.where(self.terminal, self.log_rewards - self.log_z, NOTHING)


def host_terms(world: HostWorld, states: np.ndarray) -> np.ndarray:
    """float32 [B, K]: the logarithms of the rewards of states [B, D] in a world on the host that has several."""
    assert isinstance(world, WeightedHost)
    return world.log_terms(states)


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
    min_steps: int = 1
    """At least as few steps as the shortest trajectory has, including stop."""
    num_inputs: int
    """Number of network inputs: features, or one-hot inputs."""
    num_tokens: int = 0
    """Number of one-hot entries of an encoding, K; 0 if it has features."""
    actions_per_token: int = 0
    """Actions that belong to each entry; 0 if they belong to the whole state."""
    below: int | None = None
    """States are integers in [0, below), where that is known."""
    state_name: str = "state"
    """What the numbers of a state are called in tables: state_1, state_2 …"""
    state_words: str = "states"
    """What states are called in error messages."""
    num_terms: int = 0
    """Number of reward terms that can be weighted, K; 0 if there is one reward."""
    modes_counted: int = 0
    """Number of modes of which training counts how many were found, M."""
    chart_text: str = ""
    """What the figures show; empty if there are none."""
    chart_axes: tuple[str, str] = ("coordinate 1", "coordinate 2")
    """What the rows and the columns of the figures are."""

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

    def log_terms(self, state: jax.Array) -> jax.Array:
        """float32 [K]: the logarithms of the rewards that can be weighted, where there are several."""
        raise NotImplementedError

    # What is known of the target: from the enumeration, unless a world overrides this.

    @abstractmethod
    def enumeration(self) -> Enumeration | None:
        """All states; None if there are too many."""

    def log_z(self) -> float | None:
        """The logarithm of the sum of all rewards; None if unknown."""
        found = self.enumeration()
        return None if found is None else found.log_z

    def num_modes(self) -> int | None:
        """Number of modes, where neighbouring ones are one; None if unknown."""
        found = self.enumeration()
        return None if found is None else found.num_regions

    def num_mode_cells(self) -> int | None:
        """Number of states that are modes; None if unknown."""
        found = self.enumeration()
        return None if found is None else int(found.modes.sum())

    def mode_masses(self) -> np.ndarray | None:
        """float64 [K]: the target probability of every mode, to count them in samples; None if unknown or too many."""
        return None

    def mode_of(self, objects: jax.Array) -> jax.Array:
        """int32 [B]: the mode that objects [B, D] belong to, 0 … K − 1, or K for none; see `mode_masses`."""
        raise NotImplementedError

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

    # Published metrics of a world's own, see `FlowWorld`.

    def near_modes(self, state: jax.Array) -> jax.Array:
        """bool [M]: for which of its modes an object counts."""
        raise NotImplementedError

    def metric_texts(self) -> Mapping[str, str]:
        """Metrics of the world's own → what each is."""
        return {}

    def metrics(self, sampler: Sampler) -> Mapping[str, jax.Array]:
        """The metrics of the world's own, float [] each, from a sampler of states int32 [B, D]."""
        return {}

    def image(self, state: np.ndarray) -> np.ndarray | None:
        """float [H, W]: a picture of an object int32 [D]; None if objects are not drawn."""
        return None

    def table(self, states: np.ndarray) -> Mapping[str, np.ndarray]:
        """Columns [B] that describe states int32 [B, D]: their numbers, unless a world says otherwise."""
        return {f"{self.state_name}_{d + 1}": states[:, d] for d in range(self.state_size)}

    # Figures: of a grid the marginal of the first two coordinates, of other worlds the mean of `FlowWorld.chart`.

    def target_picture(self, exact: bool) -> np.ndarray | None:
        """float64 [H, W]: the target's figure, as coarse as the estimates; None if there is none or it is unknown."""
        return None

    def marginal(self, p: jax.Array, states: jax.Array) -> jax.Array | None:
        """float32 [H, W]: the figure, from the probability of all states [N] int32 [N, D]; None if there is none."""
        return None

    def histogram(self, objects: jax.Array) -> jax.Array | None:
        """float32, in the shape of `target_picture(exact=False)`: the figure of objects [B, D]; None if none."""
        return None


def for_object(world: FlowWorld) -> str:
    """Give a world object a name under which it can be trained in this process, and return it."""
    return f"flow/{user_code.give(world)}"
