"""FLOPs and memory traffic of a program, as XLA reports them, but with loops multiplied out.

XLA counts the body of a loop once, however often it runs. Here the body of every loop of known length is analysed as a
program of its own and multiplied by its number of iterations. Two things stay inexact and are reported: a loop whose
length depends on data counts once, and a conditional counts as its most expensive branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.extend import core

LITTLE = 0.01  # of a program's traffic: smaller loop bodies are not compiled for their exact cost


class Cost(NamedTuple):
    """The cost of running something once."""

    flops: float = 0.0
    bytes: float = 0.0

    def plus(self, other: Cost, times: float = 1) -> Cost:
        """The sum of this cost and `times` the other."""
        return Cost(self.flops + times * other.flops, self.bytes + times * other.bytes)


@dataclass
class Account:
    """The cost of a program."""

    once: Cost
    """As XLA reports it: the body of each loop counted once."""
    followed: Cost
    """With loops of known length multiplied out."""
    open_loops: int
    """Number of loops of unknown length, counted once."""
    choices: int
    """Number of conditionals, counted as their most expensive branch."""


def account(built: Any) -> Account:
    """The cost of a program that `InspectingCompiler` has built."""
    once, raw = reported_cost(built.compiled), reported_cost(built.lowered)
    walk = _Walk(LITTLE * raw.bytes)
    beyond = walk.beyond(built.traced.jaxpr.jaxpr)
    return Account(once, once.plus(beyond), walk.open_loops, walk.choices)


def reported_cost(stage: Any) -> Cost:
    """XLA's cost analysis of a lowered or compiled program; zero where XLA has none."""
    found = stage.cost_analysis() or {}
    return Cost(float(found.get("flops", 0.0)), float(found.get("bytes accessed", 0.0)))


class _Walk:
    """Walks a jaxpr and everything nested in it."""

    def __init__(self, little: float):
        self.little, self.open_loops, self.choices = little, 0, 0
        self.bodies: dict[int, Cost] = {}

    def beyond(self, jaxpr: Any) -> Cost:
        """The cost of a jaxpr in excess of what XLA reports."""
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
        """XLA's cost of a loop body."""
        if id(body) not in self.bodies:
            shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
            lowered = jax.jit(core.jaxpr_as_fun(body)).lower(*shapes)
            cost = reported_cost(lowered)
            # The estimate before optimisation is far too high: where it matters, the body is compiled.
            if times * cost.bytes > self.little:
                cost = Cost(cost.flops, reported_cost(lowered.compile()).bytes)
            self.bodies[id(body)] = cost
        return self.bodies[id(body)]


def _written(length: int, unroll: int) -> int:
    """How many iterations of a loop are written out in the program."""
    return length if unroll >= length else unroll + length % unroll


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, core.ClosedJaxpr | core.Jaxpr)


def _open(jaxpr: Any) -> Any:
    return jaxpr.jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else jaxpr
