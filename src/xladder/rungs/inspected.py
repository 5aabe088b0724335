"""A compiler that keeps its programs, with their compile times, sizes and numbers of calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax

from xladder.core.compiling import options_for, uncached
from xladder.rungs.running import Compiler, platform_of


@dataclass
class Built:
    """One compiled program, which can be called."""

    name: str
    traced: Any
    lowered: Any
    compiled: Any
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    calls: int = 0

    def __call__(self, *arguments: Any) -> Any:
        """Run the program, and count the call."""
        self.calls += 1
        return self.compiled(*arguments)

    @property
    def instructions(self) -> int:
        """Number of instructions in the optimised program; those inside loops and fusions count once."""
        return sum(" = " in line for line in self.compiled.as_text().splitlines())

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on the device; `peak` is what is needed at once, with donated arguments counted once."""
        found = self.compiled.memory_analysis()
        if found is None:
            return {}
        arguments, outputs = found.argument_size_in_bytes, found.output_size_in_bytes
        peak = arguments + outputs - found.alias_size_in_bytes + found.temp_size_in_bytes
        sizes = {"arguments": arguments, "outputs": outputs, "temporaries": found.temp_size_in_bytes, "peak": peak}
        return sizes | {"code": found.generated_code_size_in_bytes}


class InspectingCompiler(Compiler):
    """Compiles as usual, timing trace, lowering and compilation separately."""

    def __init__(self) -> None:
        self.built: list[Built] = []

    def program(self, function: Callable[..., Any], donate: tuple[int, ...], *arguments: Any) -> Built:
        """Compile what a rung runs repeatedly."""
        options = options_for(platform_of(arguments))
        jitted = jax.jit(function, donate_argnums=donate, compiler_options=options)
        return self.build(jitted, function.__name__, *arguments)

    def function(self, function: Callable[..., Any], donate: tuple[int, ...] = ()) -> TracedFunction:
        """Compile one function of a host loop."""
        return TracedFunction(self, uncached(function, donate), function.__name__.strip("_"))

    def build(self, function: Any, name: str, *arguments: Any) -> Built:
        """Trace, lower and compile a function."""
        marks = [time.perf_counter()]
        steps: list[Any] = []
        for step in (lambda: function.trace(*arguments), lambda: steps[0].lower(), lambda: steps[1].compile()):
            steps.append(step())
            marks.append(time.perf_counter())
        seconds = [after - before for before, after in pairwise(marks)]
        self.built.append(Built(name, *steps, *seconds))
        return self.built[-1]


class TracedFunction:
    """A jitted function whose first argument is static; one program per combination of argument types."""

    def __init__(self, compiler: InspectingCompiler, function: Any, name: str):
        self.compiler, self.function, self.name = compiler, function, name
        self.programs: dict[Any, Built] = {}

    def __call__(self, static: Any, *arguments: Any) -> Any:
        """Run the program for these argument types."""
        return self.find(static, *arguments)(*arguments)

    def lower(self, static: Any, *arguments: Any) -> TracedFunction.Ahead:
        """Lower for these argument types, as `jax.jit` does."""
        return TracedFunction.Ahead(self.find(static, *arguments))

    def find(self, static: Any, *arguments: Any) -> Built:
        """The program for these argument types, compiled if needed."""
        leaves, tree = jax.tree.flatten(arguments)
        kinds = tuple((str(jax.typeof(leaf)), getattr(leaf, "weak_type", None)) for leaf in leaves)
        key = static, tree, kinds
        if key not in self.programs:
            self.programs[key] = self.compiler.build(self.function, self.name, static, *arguments)
        return self.programs[key]

    @dataclass
    class Ahead:
        """The result of `lower`."""

        built: Built

        def compile(self) -> Built:
            """The compiled program."""
            return self.built


@contextmanager
def traces() -> Iterator[list[str]]:
    """A list that grows by one whenever JAX traces something within this context."""
    seen: list[str] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if "jaxpr_trace" in event:
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
