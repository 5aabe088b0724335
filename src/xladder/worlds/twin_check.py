"""Compares a JAX world with its twin, step by step, with the same actions: part of `xladder check`.

A twin is another world with the same API, which is given the same keys; or a world on the host, with Gymnasium's,
PettingZoo's or sorrel's API, such as the one that the JAX world was made from. A world on the host draws its own random
numbers. So if anything is random, the JAX world has a function `prepare_twin(twin, key, state)`, which is called before
every step: it puts the twin into that state, and makes it use what the step will draw from that key.

Shapes: A agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code
from xladder.errors import UsageError
from xladder.worlds.jax_checks import attempt

STEPS = 200
CLOSE = 1e-5
Verdict = tuple[Literal["kept", "broken"], str]


class TwinFault(UsageError):
    """A twin that cannot be compared; the world itself is not at fault."""


class Returned(NamedTuple):
    """What a step returned, by agent."""

    observations: Mapping[str, np.ndarray]
    rewards: Mapping[str, float]
    ends: Mapping[str, bool]
    over: bool
    """Whether the episode is over for all."""


class Side(Protocol):
    """A world while it is compared. Agents are called as in the JAX world."""

    def reset(self, key: jax.Array) -> Mapping[str, np.ndarray]:
        """Begin an episode; returns the first observations."""

    def step(self, key: jax.Array, actions: Mapping[str, int]) -> Returned:
        """Let all agents act."""


def compare(found: Any, several: bool, twin: Any, name: str) -> Iterator[Verdict]:
    """Compare a loaded world with its twin; yields one verdict.

    Args:
        found: the world, as `gymnax_world.load` or `marl_world.load` return it.
        several: whether it has JaxMARL's API.
        twin: the twin, or a class or function that makes it.
        name: the twin's name in messages.
    """
    agents = found.agents if several else ("agent",)
    actions = found.actions if several else (found.actions,)
    ours = JaxSide(found.env, agents, None if several else Alone(found.params, found.truncates))
    other, theirs = _blamed(lambda: _twin_side(found, several, agents, twin, name))
    prepare = getattr(found.env, "prepare_twin", None) if isinstance(theirs, HostSide) else None
    rng, key = np.random.default_rng(0), jax.random.key(0)
    first = ours.reset(key), _asked(name, "reset", theirs.reset, key)
    if prepare is None and (said := _difference("observation", *first)):
        yield "broken", f"the world and its twin differ after their resets: {said}"
        return
    for t in range(STEPS):
        key = jax.random.fold_in(jax.random.key(0), t)
        taken = {agent: int(rng.integers(count)) for agent, count in zip(agents, actions, strict=True)}
        if prepare is not None:
            prepare(other, key, ours.state)
        one, two = ours.step(key, taken), _asked(name, "step", theirs.step, key, taken)
        for field, a, b in [
            ("observation", one.observations, two.observations),
            ("reward", one.rewards, two.rewards),
            ("done", one.ends, two.ends),
        ]:
            if said := _difference(field, a, b):
                yield (
                    "broken",
                    f"the world and its twin differ at step {t}: `step_env` returns a different {field}: {said}",
                )
                return
        if one.over:
            ours.reset(key)
            _asked(name, "reset", theirs.reset, key)
    yield "kept", f"its twin returns the same for {STEPS} steps of random actions"


def _blamed(call: Callable[[], Any]) -> Any:
    """Call something of a twin; its errors are told apart from those of the world."""
    try:
        return call()
    except UsageError as error:
        raise TwinFault(str(error)) from error.__cause__


def _asked(name: str, function: str, call: Callable[..., Any], *given: Any) -> Any:
    """Let a twin reset or step."""
    return _blamed(lambda: attempt(name, function, lambda: call(*given)))


def _twin_side(found: Any, several: bool, agents: tuple[str, ...], twin: Any, name: str) -> tuple[Any, Side]:
    """A twin, and how it is stepped; a `UsageError` if it has other agents than the world."""
    other = make_twin(twin, name)
    params = found.params if not several else None
    if isinstance(other, tuple):  # as `gymnax.make` returns it
        other, params = other
    elif not several:
        params = attempt(name, "default_params", lambda: getattr(other, "default_params", params))
    alone = not hasattr(other, "agents") and not hasattr(other, "possible_agents")
    if several and alone:
        raise UsageError(f"`{name}` is for one agent, but the world has {len(agents)}: {', '.join(agents)}.")
    if not hasattr(other, "step_env"):
        return other, HostSide(other, agents, name)
    if not several and not hasattr(other, "reset_env"):
        raise UsageError(f"`{name}` lacks `reset_env`, and the world is for one agent: its twin has gymnax's API, too.")
    if several and set(other.agents) != set(agents):
        named = ", ".join(map(str, other.agents))
        raise UsageError(f"`{name}` has the agents {named}, but the world has {', '.join(agents)}.")
    return other, JaxSide(other, agents, None if several else Alone(params, callable(_limit(other))))


def _limit(env: Any) -> Any:
    """The function of a world that reports its time limit; None if its author wrote none."""
    limit = getattr(env, "is_truncated", None)
    # gymnax's default reads a time and a limit that a world need not have.
    return None if str(getattr(limit, "__module__", "")).startswith("gymnax.") else limit


def make_twin(twin: Any, name: str) -> Any:
    """An instance of a twin; a sorrel environment gets PettingZoo's API."""
    from xladder.worlds.names import SORREL

    made = user_code.instantiate(twin, name)
    if not all(hasattr(made, function) for function in SORREL):
        return made
    from xladder.worlds.sorrel_host import SorrelEnv

    return SorrelEnv((lambda: user_code.instantiate(twin, name)) if made is not twin else (lambda: made), name)


class Alone(NamedTuple):
    """What gymnax's API needs besides a world."""

    params: Any
    truncates: bool
    """Whether `is_truncated` reports a time limit."""


class JaxSide:
    """A world in JAX. `alone` is given for gymnax's API; None for JaxMARL's."""

    def __init__(self, env: Any, agents: tuple[str, ...], alone: Alone | None):
        self._env, self._agents, self._alone = env, agents, alone
        self.state: Any = None

    def reset(self, key: jax.Array) -> Mapping[str, np.ndarray]:
        """Begin an episode."""
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            returned = self._env.reset(key) if self._alone is None else self._env.reset_env(key, self._alone.params)
        seen, self.state = returned[0], _arrays(returned[1])
        return self._flat(seen)

    def step(self, key: jax.Array, actions: Mapping[str, int]) -> Returned:
        """Let all agents act."""
        given = _arrays(dict(actions))  # as in training
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return self._step_all(key, given) if self._alone is None else self._step_one(key, given, self._alone)

    def _step_all(self, key: jax.Array, actions: Mapping[str, jax.Array]) -> Returned:
        seen, state, rewards, dones, _ = self._env.step_env(key, self.state, actions)
        self.state = _arrays(state)
        over = bool(dones["__all__"])
        ends = {agent: over or bool(dones[agent]) for agent in self._agents}
        return Returned(self._flat(seen), {a: float(rewards[a]) for a in self._agents}, ends, over)

    def _step_one(self, key: jax.Array, actions: Mapping[str, jax.Array], alone: Alone) -> Returned:
        seen, state, reward, terminated, _ = self._env.step_env(
            key, self.state, next(iter(actions.values())), alone.params
        )
        self.state = _arrays(state)
        over = bool(terminated)
        if alone.truncates:
            over = over or bool(self._env.is_truncated(self.state, alone.params))
        agent = self._agents[0]
        return Returned(self._flat(seen), {agent: float(reward)}, {agent: over}, over)

    def _flat(self, seen: Any) -> dict[str, np.ndarray]:
        by_agent = seen if self._alone is None else {self._agents[0]: seen}
        return {agent: _numbers(by_agent[agent]) for agent in self._agents}


def _arrays(tree: Any) -> Any:
    """Python numbers in a tree as arrays, int32 and float32, which is what worlds are given in training."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, bool | int | float) else leaf, tree)


class HostSide:
    """A world on the host, with PettingZoo's parallel API or Gymnasium's; agents are paired by their order."""

    def __init__(self, env: Any, agents: tuple[str, ...], name: str):
        self._env, self._several = env, hasattr(env, "possible_agents")
        theirs = list(env.possible_agents) if self._several else list(agents)
        if len(theirs) != len(agents):
            raise UsageError(f"`{name}` has {len(theirs)} agents, but the world has {len(agents)}.")
        self._names = dict(zip(agents, theirs, strict=True))
        self._begun = False

    def reset(self, key: jax.Array) -> Mapping[str, np.ndarray]:
        """Begin an episode; the key is not used."""
        seen, _ = self._env.reset(seed=None if self._begun else 0)
        self._begun = True
        return self._flat(seen)

    def step(self, key: jax.Array, actions: Mapping[str, int]) -> Returned:
        """Let all agents act."""
        if not self._several:
            seen, reward, ended, cut, _ = self._env.step(next(iter(actions.values())))
            over = bool(ended) or bool(cut)
            agent = next(iter(actions))
            return Returned(self._flat(seen), {agent: float(reward)}, {agent: over}, over)
        present = set(self._env.agents)
        given = {self._names[agent]: action for agent, action in actions.items() if self._names[agent] in present}
        seen, rewards, ended, cut, _ = self._env.step(given)
        names = {ours: theirs for ours, theirs in self._names.items() if theirs in present}
        ends = {ours: bool(ended[theirs]) or bool(cut[theirs]) for ours, theirs in names.items()}
        got = {ours: float(rewards[theirs]) for ours, theirs in names.items()}
        return Returned(self._flat(seen), got, ends, not self._env.agents)

    def _flat(self, seen: Any) -> dict[str, np.ndarray]:
        if not self._several:
            return {agent: _numbers(seen) for agent in self._names}
        return {ours: _numbers(_unmasked(seen[theirs])) for ours, theirs in self._names.items() if theirs in seen}


def _unmasked(seen: Any) -> Any:
    return seen["observation"] if isinstance(seen, Mapping) and "action_mask" in seen else seen


def _numbers(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)])


def _difference(field: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """The first difference, of agents that both have; empty if there is none."""
    for agent in ours:
        if agent not in theirs:
            continue  # its episode is over there
        one, two = (np.atleast_1d(np.asarray(side[agent], np.float64)) for side in (ours, theirs))
        who = f" of {agent}" if len(ours) > 1 else ""
        if one.shape != two.shape:
            return f"the {field}{who} has {one.size} numbers here and {two.size} there"
        if not np.allclose(one, two, rtol=0, atol=CLOSE):
            place = int(np.argmax(np.abs(one - two) > CLOSE))
            where = f" at {place}" if one.size > 1 else ""
            return f"the {field}{who}{where} is {one[place]:g} here and {two[place]:g} there"
    return ""
