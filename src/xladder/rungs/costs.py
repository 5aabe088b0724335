"""How much arithmetic and memory traffic a program is, by XLA's own account, with loops followed.

XLA counts the body of a loop once, however often it runs. Here the body of every loop of known length is put to XLA
as a program of its own, and counted as often as it runs. What stays inexact is told beside it: a loop whose length
depends on data counts once, and of a choice the dearest branch counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.extend import core

LITTLE = 0.01  # of a program's traffic: a body below that is not worth a compilation


class Cost(NamedTuple):
    """Of running something once."""

    flops: float = 0.0
    bytes: float = 0.0

    def plus(self, other: Cost, times: float = 1) -> Cost:
        """This and so many times the other."""
        return Cost(self.flops + times * other.flops, self.bytes + times * other.bytes)


@dataclass
class Account:
    """What a program costs."""

    once: Cost
    """As XLA says it: the body of each loop once."""
    followed: Cost
    """With loops of known length followed."""
    open_loops: int
    """Loops of unknown length, counted once."""
    choices: int
    """Counted by their dearest branch."""


def account(built: Any) -> Account:
    """The costs of a program that `InspectingCompiler` has made."""
    once, raw = reported_cost(built.compiled), reported_cost(built.lowered)
    walk = _Walk(LITTLE * raw.bytes)
    beyond = walk.beyond(built.traced.jaxpr.jaxpr)
    return Account(once, once.plus(beyond), walk.open_loops, walk.choices)


def reported_cost(stage: Any) -> Cost:
    """What XLA says of a lowered or a compiled program; nothing where it does not say."""
    found = stage.cost_analysis() or {}
    return Cost(float(found.get("flops", 0.0)), float(found.get("bytes accessed", 0.0)))


class _Walk:
    """Goes through a jaxpr and whatever is inside it."""

    def __init__(self, little: float):
        self.little, self.open_loops, self.choices = little, 0, 0
        self.bodies: dict[int, Cost] = {}

    def beyond(self, jaxpr: Any) -> Cost:
        """What running it costs more than XLA says."""
        total = Cost()
        for equation in jaxpr.eqns:
            inner = [
                leaf for leaf in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr) if _is_jaxpr(leaf)
            ]
            name = equation.primitive.name
            if name == "scan":
                (body,), length = inner, equation.params["length"]
                unseen = length - _written(length, equation.params["unroll"])
                total = total.plus(self.beyond(_open(body)), length)
                if unseen > 0:
                    total = total.plus(self.body(body, unseen), unseen)
            elif name == "cond":
                self.choices += 1
                branches = [self.beyond(_open(branch)) for branch in inner]
                total = total.plus(Cost(max(b.flops for b in branches), max(b.bytes for b in branches)))
            else:
                self.open_loops += name == "while"
                for each in inner:
                    total = total.plus(self.beyond(_open(each)))
        return total

    def body(self, body: Any, times: int) -> Cost:
        """What XLA says of the body of a loop."""
        if id(body) not in self.bodies:
            shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
            lowered = jax.jit(core.jaxpr_as_fun(body)).lower(*shapes)
            cost = reported_cost(lowered)
            # Before it is optimised a program seems to move far more: where that matters, it is compiled.
            if times * cost.bytes > self.little:
                cost = Cost(cost.flops, reported_cost(lowered.compile()).bytes)
            self.bodies[id(body)] = cost
        return self.bodies[id(body)]


def _written(length: int, unroll: int) -> int:
    """How many turns of a loop of `length` stand in the program."""
    return length if unroll >= length else unroll + length % unroll


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, core.ClosedJaxpr | core.Jaxpr)


def _open(jaxpr: Any) -> Any:
    return jaxpr.jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else jaxpr
