"""The space of a sweep: which settings vary, over which values, and the trials drawn from it. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from xladder.errors import UsageError, unknown
from xladder.plans import fit_length
from xladder.protocols import Config
from xladder.settings import updated

FORMS = "a list such as 0.001,0.01, or a range such as 0.9..0.99 or log:1e-5..1e-2"
MOST_TRIALS = 20_000
ROUNDED = 1e-5  # by how much, relatively, the ends of a range in a sweep.json of an earlier version may be off
DIGITS = 4  # of a drawn number: enough to tell trials apart, short enough to type


@dataclass(frozen=True)
class Choices:
    """A setting that takes one of several values."""

    name: str
    values: tuple[Any, ...]

    @cached_property
    def _typed_values(self) -> frozenset[tuple[type, Any]]:
        return frozenset((type(value), value) for value in self.values)  # 1, 1.0 and True are equal

    def draw(self, rng: np.random.Generator) -> Any:
        """One of the values."""
        return self.values[int(rng.integers(len(self.values)))]

    def perturb(self, value: Any, rng: np.random.Generator) -> Any:
        """The value next to `value` in the list, or `value` itself."""
        place = self.values.index(value) + int(rng.integers(-1, 2))
        return self.values[min(max(place, 0), len(self.values) - 1)]

    def has(self, value: Any) -> bool:
        """Whether a value, which may be of any type, is one of them."""
        return isinstance(value, str | int | float) and (type(value), value) in self._typed_values

    def heights(self, values: Sequence[Any] | np.ndarray) -> np.ndarray:
        """Where values lie on this axis, from 0 to 1."""
        return np.array([self.values.index(value) for value in values]) / max(len(self.values) - 1, 1)

    def marks(self) -> list[tuple[float, str]]:
        """Heights and labels to draw."""
        return [(float(self.heights([value])[0]), str(value)) for value in self.values]

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


@dataclass(frozen=True)
class Range:
    """A setting that takes any value between two numbers."""

    name: str
    low: float
    high: float
    logarithmic: bool = False
    whole: bool = False

    def draw(self, rng: np.random.Generator) -> float | int:
        """A value, uniform on a linear or a logarithmic scale."""
        if self.logarithmic:
            return self._rounded(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return self._rounded(rng.uniform(self.low, self.high))

    def perturb(self, value: float, rng: np.random.Generator) -> float | int:
        """A value a quarter larger or a fifth smaller, within the range."""
        return self._rounded(min(max(value * (1.25 if rng.integers(2) else 0.8), self.low), self.high))

    def _rounded(self, value: float) -> float | int:
        if self.whole:
            return round(value)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def has(self, value: Any) -> bool:
        """Whether a value, which may be of any type, lies in the range; its ends as earlier versions rounded them."""
        kinds = (int,) if self.whole else (int, float)
        slack = ROUNDED * max(abs(self.low), abs(self.high)) + (0.5 if self.whole else 0)
        return type(value) in kinds and self.low - slack <= value <= self.high + slack

    def heights(self, values: Sequence[Any] | np.ndarray) -> np.ndarray:
        """Where values lie on this axis, from 0 to 1."""
        low, high, at = (np.log(x) if self.logarithmic else np.asarray(x) for x in (self.low, self.high, values))
        return (at - low) / (high - low)

    def marks(self) -> list[tuple[float, str]]:
        """Heights and labels to draw."""
        if self.logarithmic:  # the ends, and powers of ten that are not too close to them
            powers = 10.0 ** np.arange(np.ceil(np.log10(self.low)), np.floor(np.log10(self.high)) + 1)
            between = [power for power in powers if 0.08 < float(self.heights([power])[0]) < 0.92]
        else:
            between = list(np.linspace(self.low, self.high, 5)[1:-1])
        values = [self.low, *between, self.high]
        return [(float(height), f"{value:.3g}") for height, value in zip(self.heights(values), values, strict=True)]

    def __str__(self) -> str:
        return f"{'log:' * self.logarithmic}{_shortest(self.low)}..{_shortest(self.high)}"


def _shortest(number: float) -> str:
    """A number in as few digits as read back as the same: a sweep that is resumed has the space that it began with."""
    return text if float(text := f"{number:g}") == number else repr(number)


Axis = Choices | Range


def parse_axis(config: Config, name: str, text: Any) -> Axis:
    """Parse the values of a setting: a list or a range, as text or as a Python list.

    Args:
        config: The config that has the setting.
        name: Its name, such as `learner.lr`.
        text: The values, such as `0.001,0.01` or `log:1e-5..1e-2`.
    """
    kind = field_type(config, name)
    if not isinstance(text, str):
        values = tuple(text) if isinstance(text, Sequence) else ()
        if len(values) < 1:
            raise UsageError(f"`{name}` is {text!r}, but a sweep needs {FORMS}.")
        return _choices(kind, name, [str(value) for value in values], str(text))
    found = re.fullmatch(r"(log:|int:)?\s*(\S+?)\.\.(\S+)", text)
    if found:
        if kind not in (int, float):
            raise UsageError(f"`{name}` is {text}, but it is not a number: give a list of values.")
        low, high = (_typed(float, name, part) for part in found.groups()[1:])
        logarithmic = found[1] == "log:"
        if not (math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not logarithmic)):
            more = ", both above 0" if logarithmic else ""
            raise UsageError(f"`{name}` is {text}, but a range goes from a smaller number to a larger one{more}.")
        return Range(name, low, high, logarithmic, kind is int)
    parts = [part.strip() for part in text.split(",")]
    if text.startswith(("log:", "int:")) or not all(parts):
        raise UsageError(f"`{name}` is {text}, but a sweep needs {FORMS}.")
    return _choices(kind, name, parts, text)


def _choices(kind: Any, name: str, parts: Sequence[str], given: str) -> Choices:
    values = tuple(_typed(kind, name, part) for part in parts)
    if len(set(values)) < len(values):
        raise UsageError(f"`{name}` is {given}, and has a value twice.")
    return Choices(name, values)


def is_space(text: str) -> bool:
    """Whether the value of a flag is a list or a range, rather than a single value."""
    return "," in text or ".." in text or text.startswith(("log:", "int:"))


def field_type(config: Config, name: str) -> Any:
    """The type of a config's field, by its dotted name."""
    node: Any = config
    *path, last = name.split(".")
    for part in path:
        node = getattr(node, part, None)
    if not dataclasses.is_dataclass(node) or last not in get_type_hints(type(node)) or not hasattr(node, last):
        raise unknown("setting", name, field_names(config))
    return get_type_hints(type(node))[last]


def field_names(config: Any, prefix: str = "") -> list[str]:
    """The dotted names of all fields of a config."""
    names: list[str] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        nested = dataclasses.is_dataclass(value)
        names += field_names(value, f"{prefix}{field.name}.") if nested else [prefix + field.name]
    return names


def value_of(config: Any, name: str) -> Any:
    """The value of a config's field, by its dotted name."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def with_values(config: Config, values: Mapping[str, Any]) -> Any:
    """A config with other values of some fields, by their dotted names; checked."""
    changes: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        node = changes
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    # A tick of this trial may be longer than that of the sweep's settings; by how much is not worth a line per trial.
    return fit_length(updated(config, changes))[0]


def draw_trials(axes: Sequence[Axis], count: int | None, seed: int) -> list[dict[str, Any]]:
    """The settings of each trial: the whole grid if `count` is None or enough for it, else drawn at random."""
    lists = [axis for axis in axes if isinstance(axis, Choices)]
    size = math.prod(len(axis.values) for axis in lists) if len(lists) == len(axes) else None
    if count is not None and count > MOST_TRIALS:
        raise UsageError(f"`--trials` is {count}, but it has to be {MOST_TRIALS:,} or less: they train at once.")
    if size is not None and count is None and size > MOST_TRIALS:
        raise UsageError(
            f"The lists make a grid of {size:,} trials, but a sweep has {MOST_TRIALS:,} at most: they train at once. "
            "`--trials` is how many of them to draw."
        )
    if size is not None and (count is None or count >= size):
        return [
            dict(zip([axis.name for axis in lists], point, strict=True))
            for point in itertools.product(*(axis.values for axis in lists))
        ]
    if count is None:
        raise UsageError("A sweep over a range needs `--trials`: how many values to draw.")
    rng, found = np.random.default_rng(seed), list[dict[str, Any]]()
    for _ in range(100 * count):
        trial = {axis.name: axis.draw(rng) for axis in axes}
        if trial not in found:
            found.append(trial)
        if len(found) == count:
            return found
    raise UsageError(f"The space has {len(found)} different trials, fewer than `--trials {count}`.")


def _typed(kind: Any, name: str, text: str) -> Any:
    try:
        if get_origin(kind) is Literal:
            if text not in get_args(kind):
                raise UsageError(f"`{name}` is {text!r}, but it has to be one of {', '.join(get_args(kind))}.")
            return text
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is int:
            whole = int(float(text)) if re.fullmatch(r"\d+(\.0*)?(e\d+)?", text) else int(text)
            return whole
        if kind in (float, str):
            return kind(text)
    except (ValueError, KeyError, OverflowError):
        raise UsageError(f"`{name}` is {text!r}, but it has to be of type {kind.__name__}.") from None
    raise UsageError(f"`{name}` cannot be swept: only numbers, words and true/false can.")
