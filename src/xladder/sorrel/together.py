"""The actions of several models in one call, for loops in which all agents observe before any of them acts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from xladder.core.compiling import compiled
from xladder.errors import UsageError
from xladder.sorrel.joint import leave
from xladder.sorrel.learning import Learned, Network, stack
from xladder.sorrel.models import JaxModel


class Together:
    """Models of the same sizes that act in one call.

    Their updates are computed in one go without this: it is for loops in which all agents observe before any acts.

    Args:
        models: The models, in the order of their agents.
    """

    def __init__(self, models: Sequence[JaxModel]):
        self.models = list(models)
        for i, model in enumerate(self.models):
            if not isinstance(model, JaxModel):
                raise UsageError(f"Model {i} is a {type(model).__name__}, but only xladder's models act together.")
            sizes, first = (replace(each.network, batch_size=0) for each in (model, self.models[0]))
            if sizes != first or model.jax_device != self.models[0].jax_device:
                raise UsageError(
                    f"Model {i} is {_describe(model)}, but model 0 is {_describe(self.models[0])}: models act together "
                    "only if they have the same sizes and device."
                )
        if not self.models:
            raise UsageError("There are no models to act together: give one or more.")
        self._stacked: tuple[list[Any], Learned] | None = None

    def take_actions(self, states: Sequence[np.ndarray]) -> list[int]:
        """An action of every model for its state, [1, inputs]: random with its probability ε, else greedy.

        On a GPU all greedy actions are one call; on a CPU one after another in NumPy is the fastest.
        """
        first = self.models[0]
        if len(states) != len(self.models):
            raise UsageError(f"There are {len(states)} states for {len(self.models)} models: give one each.")
        if first.jax_device.platform == "cpu":
            return [model.take_action(state) for model, state in zip(self.models, states, strict=True)]
        for model in self.models:
            leave(model)
        explore = [model.explores() for model in self.models]
        if all(explore):
            return [model.random_action() for model in self.models]
        rows = np.stack([np.asarray(state, np.float32).reshape(-1) for state in states])
        taus = np.stack([model.draw_fractions() for model in self.models])
        greedy = np.asarray(compiled(_greedy)(first.network, self._agents().params, rows, taus))
        return [
            model.random_action() if random_one else int(best)
            for model, random_one, best in zip(self.models, explore, greedy, strict=True)
        ]

    def _agents(self) -> Learned:
        """The models' states, stacked anew only where one has changed."""
        held = [model.held for model in self.models]
        if self._stacked is None or any(a is not b for a, b in zip(self._stacked[0], held, strict=True)):
            self._stacked = held, stack(held)
        return self._stacked[1]


def _greedy(network: Network, params: Any, states: jax.Array, taus: jax.Array) -> jax.Array:
    """int32 [N]: the greedy actions of N agents, params [N, …], in states [N, I] at fractions [N, Q]."""
    values = jax.vmap(lambda params, state, tau: network.learner.values(params, state, tau, None))
    return values(params, states, taus).argmax(-1)


def _describe(model: JaxModel) -> str:
    n = model.network
    quantiles = f", {n.quantiles} quantiles" if n.quantiles else ""
    return f"{n.kind.upper()} on {model.device} ({n.inputs} inputs, width {n.width}, {n.actions} actions{quantiles})"


def act_together(env: Any) -> Together:
    """Let all agents of a sorrel environment observe before any of them acts, and choose their actions in one call.

    This changes the world: sorrel's agents see what those before them have just done, and now they see the board as it
    was at the beginning of the turn. They still move one after another.

    Args:
        env: A sorrel `Environment` whose agents have models of the same sizes. It is changed.
    """
    agents = list(env.agents)
    group = Together([agent.model for agent in agents])

    def turn(world: Any) -> None:
        seen = [agent.pov(world) for agent in agents]
        inputs = [_recorded(agent, state) for agent, state in zip(agents, seen, strict=True)]
        for agent, state, action in zip(agents, seen, group.take_actions(inputs), strict=True):
            # The agent's own `transition` runs, with the observation and the action that are already there.
            see, choose = (lambda world, state=state: state), (lambda state, action=action: action)
            with _replaced(agent, "pov", see), _replaced(agent.model, "take_action", choose):
                type(agent).transition(agent, world)

    for agent in agents[1:]:
        agent.transition = lambda world: None
    agents[0].transition = turn
    return group


def _recorded(agent: Any, state: np.ndarray) -> np.ndarray:
    """What an agent would give its model for an observation."""
    given: list[np.ndarray] = []

    def record(state: np.ndarray) -> int:
        given.append(state)
        return 0

    with _replaced(agent.model, "take_action", record):
        agent.get_action(state)
    if not given:
        raise UsageError(f"A {type(agent).__name__} does not call its model's `take_action`: it cannot act together.")
    return given[0]


@contextmanager
def _replaced(owner: Any, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of one object for a while."""
    own = vars(owner).get(name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        delattr(owner, name) if own is None else setattr(owner, name, own)
