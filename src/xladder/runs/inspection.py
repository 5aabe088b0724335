"""Inspect a workload on a rung: its compiled programs, their cost, the time per tick and the machine's limits."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import numpy as np

from xladder import devices
from xladder.plans import Plan, check_fits
from xladder.registry import find_rung
from xladder.rungs.running import HostRun, Running
from xladder.runs import limits

TIMED_SECONDS = 0.4  # the least duration of a measurement, so that its overhead is negligible
REPEATS = 5
PATIENCE = 20.0  # seconds to wait for learning to start
MOST_TICKS = 200  # in one measurement


def inspect(plan: Plan) -> tuple[dict[str, Any], dict[str, str]]:
    """Measure a plan; returns the facts of `xladder inspect --json`, and all programs as `jaxpr` and `hlo` text."""
    rung, device = find_rung(plan.rung, plan.workload), devices.find(plan.device)
    check_fits(plan.config, 1, devices.memory_bytes(device))
    together = rung.population and plan.workload.population
    seeds = plan.seeds if together else plan.seeds[:1]
    facts: dict[str, Any] = {
        "workload": plan.workload.name,
        "rung": plan.rung,
        "tick": plan.workload.tick,
        "seeds": len(seeds),
        "device": devices.describe(device),
    }
    if rung.in_pytorch:
        with closing(rung.start(plan.config, seeds, device)) as running:
            why = "PyTorch runs one operation after another and compiles nothing, so there is no program to inspect."
            if running.compile_seconds:
                why = "`torch.compile` keeps its programs to itself, so only times are shown."
            facts |= {"programs": [], "note": f"{running.note} {why}".strip()} | timings(running)
        return facts, {}
    from xladder.rungs.inspected import InspectingCompiler, traces

    compiler = InspectingCompiler()
    with closing(rung.start(plan.config, seeds, device, compiler)) as running:
        facts |= timings(running)
        for program in compiler.built:
            program.calls = 0
        with traces() as seen:
            running.advance(1)
        calls = [program.calls for program in compiler.built]
        facts |= {"traced_again": len(seen), "note": running.note} | costs(plan, running, compiler, calls)
    facts["limits"] = limits.measure(device)
    seconds, per_tick = facts["tick_seconds"], facts["per_tick"]
    facts["share"] = {
        "flops": per_tick["flops"] / seconds / facts["limits"]["flops_per_second"],
        "bytes": per_tick["bytes_accessed"] / seconds / facts["limits"]["bytes_per_second"],
    }
    texts = {
        "jaxpr": "\n\n".join(f"# {program.name}\n{program.traced.jaxpr}" for program in compiler.built),
        "hlo": "\n\n".join(f"// {program.name}\n{program.compiled.as_text()}" for program in compiler.built),
    }
    return facts, texts


def timings(running: Running) -> dict[str, Any]:
    """Median seconds per tick of all seeds together after learning has started, and of its parts if known."""
    begun, learning, count = time.perf_counter(), False, 1
    while not learning and time.perf_counter() - begun < PATIENCE:
        learning = bool(np.isfinite(running.advance(count)["loss"][:, -1]).all())
        count = min(2 * count, MOST_TICKS)
    running.advance(1)
    count, seconds = 1, _seconds(running, 1)
    if seconds < TIMED_SECONDS:
        count = min(MOST_TICKS, max(1, int(TIMED_SECONDS / seconds)))
    times = [_seconds(running, count) / count for _ in range(REPEATS)]
    return {
        "tick_seconds": float(np.median(times)),
        "ticks_timed": count * REPEATS,
        "learning": learning,
        # Only host loops record them; timing the parts of a compiled program takes long and is left to `compare`.
        "phases": running.phases() if isinstance(running, HostRun) else {},
    }


def costs(plan: Plan, running: Any, compiler: Any, calls: list[int]) -> dict[str, Any]:
    """The size and cost of each program and of a tick."""
    from xladder.rungs.costs import Cost, account

    whole = list(compiler.built)
    counted = list(zip(whole, calls, strict=True))
    if plan.rung == "fused":
        # A chunk is a loop whose length is an argument, so XLA would count one tick and everything around the loop.
        tick = compiler.program(running.program.tick, (0, 1), running.counters, running.runs)
        counted = [(tick, 1)]
        compiler.built.remove(tick)
    accounts = [(account(program), times) for program, times in counted]
    once = followed = Cost()
    for each, times in accounts:
        once, followed = once.plus(each.once, times), followed.plus(each.followed, times)
    programs = [
        {
            "name": program.name,
            "calls_per_tick": times if plan.rung != "fused" else None,
            "trace_seconds": program.trace_seconds,
            "lower_seconds": program.lower_seconds,
            "compile_seconds": program.compile_seconds,
            "instructions": program.instructions,
            "memory": program.memory,
        }
        for program, times in zip(whole, calls, strict=True)
    ]
    return {
        "programs": programs,
        "per_tick": {
            "flops": followed.flops,
            "bytes_accessed": followed.bytes,
            "flops_loops_once": once.flops,
            "bytes_accessed_loops_once": once.bytes,
            "loops_of_unknown_length": sum(each.open_loops for each, times in accounts if times),
            "choices": sum(each.choices for each, times in accounts if times),
        },
    }


def _seconds(running: Running, ticks: int) -> float:
    begun = time.perf_counter()
    running.advance(ticks)
    return time.perf_counter() - begun
