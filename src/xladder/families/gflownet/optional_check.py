"""Checks what a user's own world may have besides its steps and its reward: modes, metrics, a chart; each a sentence.

Shapes: B states, D numbers in a state, M modes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.errors import located
from xladder.families.gflownet.config import BY_SAMPLING, EXACTLY
from xladder.worlds.flow import Enumeration, FlowWorld
from xladder.worlds.flow_own import OwnWorld

CLOSE = 1e-3  # of log Z, which a user may have summed in float32
TABLED = 3  # objects that a table is tried on
# Columns of metrics.csv that a sampler may have; a metric of the world's own cannot have such a name.
TRAINED = ("seed", "iteration", "steps", "return", "loss", "log_z", "length", "epsilon", "temperature", "modes_found")
TAKEN = {*TRAINED, *EXACTLY, *BY_SAMPLING, "seconds"}
# Attribute → the method that it needs.
NEEDED = {
    "num_terms": "log_terms",
    "modes_counted": "near_modes",
    "metric_texts": "metrics",
    "chart_text": "chart",
}


def absent_methods(own: FlowWorld) -> Iterator[str]:
    """Methods that attributes of a world need, and that it does not have."""
    for attribute, method in NEEDED.items():
        if getattr(own, attribute) and getattr(type(own), method) is getattr(FlowWorld, method):
            yield f"`{attribute}` is {getattr(own, attribute)!r}, but there is no `{method}`."


def optional_faults(world: OwnWorld, objects: np.ndarray, known: Enumeration | None) -> Iterator[str]:
    """The faults of what a world has by choice.

    Args:
        world: The world, whose steps and rewards have no faults.
        objects: int32 [B, D]: some objects.
        known: All its states, if they are enumerated.
    """
    own = world.world
    yield from _tokens(world)
    yield from _modes(world)
    if own.metric_texts:
        yield from _metrics(world, known)
    if own.chart_text:
        yield from _array("chart", lambda: jax.eval_shape(own.chart, _one(world)), "float [H, W]", 2)
    yield from _log_z(own, known)
    yield from _drawn(world, objects)


def _one(world: OwnWorld) -> Any:
    """The shape of one state, as the world's own methods are given it."""
    return jax.eval_shape(world.unflatten, jax.ShapeDtypeStruct((world.state_size,), jnp.int32))


def _tokens(world: OwnWorld) -> Iterator[str]:
    each, moves = world.actions_per_token, world.num_actions - 1
    if not isinstance(each, int) or each < 0:
        yield f"`actions_per_token` is {each!r}, but it has to be a whole number, 0 or more."
    elif each and not world.num_tokens:
        yield f"`actions_per_token` is {each}, but `encode` gives no whole numbers, to which actions could belong."
    elif each and each * world.num_tokens != moves:
        yield (
            f"`actions_per_token` is {each}, which makes {each * world.num_tokens:,} actions for the "
            f"{world.num_tokens} numbers of `encode`, but there are {moves:,} besides stop."
        )


def _modes(world: OwnWorld) -> Iterator[str]:
    count = world.modes_counted
    if not isinstance(count, int) or count < 0:
        yield f"`modes_counted` is {count!r}, but it has to be a whole number, 0 or more."
    elif count:
        given = f"bool [{count}] (`modes_counted`)"
        yield from _array("near_modes", lambda: jax.eval_shape(world.world.near_modes, _one(world)), given, 1, count)


def _metrics(world: OwnWorld, known: Enumeration | None) -> Iterator[str]:
    """Check that every metric is one number, on a sampler that samples the initial state alone."""
    texts = world.world.metric_texts
    if not isinstance(texts, Mapping) or not all(isinstance(x, str) for item in texts.items() for x in item):
        yield f"`metric_texts` is a {type(texts).__name__}, but it has to be a dict: name → what it is, in a few words."
        return
    for name in texts:
        if name in TAKEN or not name.isidentifier():
            why = "every sampler has a column of that name" if name in TAKEN else "it has to be one word"
            yield f"`metric_texts` has a metric {name!r}, but {why}: choose another."
            return
    try:
        found: Any = jax.eval_shape(lambda: dict(world.metrics(_Standing(world, known))))
    except (Exception, SystemExit) as error:
        yield f"`metrics` fails inside `jit`: {located(error)}. It has to be pure JAX."
        return
    for name in texts:
        if name not in found:
            yield f"`metrics` gives no {name!r}, which `metric_texts` names."
        elif getattr(found[name], "shape", None) != () or jnp.dtype(found[name].dtype).kind not in "biuf":
            yield f"`metrics` gives {_shown(found[name])} for {name!r}, but it has to be one number."


class _Standing:
    """A sampler that has no network: all that it builds is the initial state."""

    def __init__(self, world: OwnWorld, known: Enumeration | None):
        self.world, self.known = world, known

    def sample(self, count: int, number: int = 0) -> jax.Array:
        """int32 [count, D]: initial states."""
        return jnp.broadcast_to(self.world.initial()[None], (count, self.world.state_size))

    def distribution(self) -> tuple[jax.Array, jax.Array] | None:
        """int32 [N, D] and float32 [N]: all states, equally probable; None if they are not enumerated."""
        if self.known is None:
            return None
        return jnp.asarray(self.known.states), jnp.full(len(self.known.states), -np.log(len(self.known.states)))

    def log_probability(self, objects: Any, ways: int = 10) -> jax.Array:
        """float32 [B]: zeros."""
        return jnp.zeros(len(objects), jnp.float32)


def _log_z(own: FlowWorld, known: Enumeration | None) -> Iterator[str]:
    try:
        value = own.known_log_z()
        if value is None:
            return
        value = float(value)
    except (Exception, SystemExit) as error:
        yield f"`known_log_z` fails: {located(error)}."
        return
    if not np.isfinite(value):
        yield f"`known_log_z` is {value:g}, but it has to be a finite number, or None if it is not known."
    elif known is not None and abs(value - known.log_z) > CLOSE * max(1.0, abs(known.log_z)):
        yield f"`known_log_z` is {value:.6g}, but the rewards of all objects add up to a log Z of {known.log_z:.6g}."


def _drawn(world: OwnWorld, objects: np.ndarray) -> Iterator[str]:
    """Check the table and the picture of a few objects."""
    some = objects[:TABLED]
    try:
        columns = {name: np.asarray(column) for name, column in world.table(some).items()}
    except (Exception, SystemExit) as error:
        yield f"`table_columns` fails: {located(error)}."
        return
    for name, column in columns.items():
        if column.shape != (len(some),):
            given = f"{column.dtype} {list(column.shape)}"
            yield f"`table_columns` gives {given} for the column {name!r} of {len(some)} objects: one entry for each."
            return
    try:
        pictures = [world.image(state) for state in (np.asarray(world.initial()), some[0])]
        if any(picture is not None and np.ndim(picture) != 2 for picture in pictures):
            rank = max(np.ndim(picture) for picture in pictures if picture is not None)
            yield f"`image` gives an array of {rank} dimensions, but it has to be [H, W], or None."
    except (Exception, SystemExit) as error:
        yield f"`image` fails: {located(error)}."


def _array(name: str, shape_of: Callable[[], Any], wanted: str, rank: int, size: int | None = None) -> Iterator[str]:
    """Check the shape that a method gives for one state."""
    try:
        found = shape_of()
    except (Exception, SystemExit) as error:
        yield f"`{name}` fails inside `jit`: {located(error)}. It has to be pure JAX, for one state."
        return
    array = isinstance(found, jax.ShapeDtypeStruct) and jnp.dtype(found.dtype).kind in "biuf"
    if not array or len(found.shape) != rank or (size is not None and found.shape != (size,)):
        yield f"`{name}` gives {_shown(found)} for one state, but it has to be {wanted}."


def _shown(found: Any) -> str:
    one = isinstance(found, jax.ShapeDtypeStruct)
    return f"{found.dtype} {list(found.shape)}" if one else f"a {type(found).__name__}"
