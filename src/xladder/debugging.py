"""The checks of `--debug`, and the rungs they work on. Needs no JAX: `rungs/debugged.py` runs the checks."""

from __future__ import annotations

from collections.abc import Iterable

from xladder.errors import UsageError, unknown
from xladder.plans import Plan
from xladder.registry import RUNGS

CHECKS = {
    "nans": "stop at the first nan, and name the operation that produced it",
    "checkify": "check every operation of a tick for nan, division by zero and indices out of bounds",
    "nojit": "run without jit, so that print and breakpoint() work; slow",
    "keys": "raise an error when a random key is used twice",
    "transfers": "raise an error on implicit transfers between host and device while a chunk runs",
    "compiles": "log every compilation, and why the cached program could not be reused",
}
_ON_HOST = "its world runs on the host, so there is no compiled program of a whole tick"


def parse(texts: Iterable[str]) -> tuple[str, ...]:
    """Parse names of checks, given as `nans,keys` or one by one, and drop repeats."""
    texts = tuple(texts)
    names = dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip())
    if texts and not names:
        raise UsageError(f"`--debug` names no check. There are: {', '.join(CHECKS)}.")
    for name in names:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS)
    return tuple(names)


def check(checks: Iterable[str], plan: Plan) -> None:
    """Raise a `UsageError` if a check does not work on a plan's rung."""
    checks = set(checks)
    if checks and RUNGS[plan.rung].in_pytorch:
        raise UsageError(
            f"`--debug {min(checks)}` checks JAX, and the `{plan.rung}` rung does not use it: use `--rung parallel`, "
            "or PyTorch's own `torch.autograd.set_detect_anomaly(True)`."
        )
    for name in sorted(checks & {"checkify", "transfers", "nojit"}) if plan.rung == "mesh" else ():
        raise UsageError(
            f"`--debug {name}` checks a program on one device, and `mesh` uses several: use `--rung parallel`, "
            "which runs the same ticks on one."
        )
    whole = plan.rung == "fused" or (plan.rung == "parallel" and plan.config.world.jittable)
    for name in sorted(checks & {"checkify", "transfers"}):
        if not whole:
            why = _ON_HOST if name == "checkify" else "its host loop transfers data in every call"
            raise UsageError(f"`--debug {name}` does not work on `{plan.rung}` here: {why}. {_way_out(plan)}")
    if "nojit" in checks:
        if plan.rung == "fused":
            raise UsageError(
                "`--debug nojit` does not work on `fused`, one program of many ticks: use `--rung parallel`, "
                "which runs the same ticks one by one."
            )
        if plan.rung == "actors":
            raise UsageError(
                "`--debug nojit` does not work on `actors`: use `--rung sequential`, the same algorithm in one loop."
            )
        if plan.rung == "parallel" and not whole:
            raise UsageError("`--debug nojit` does not work where worlds and device overlap: use `--rung sequential`.")
        for name in sorted(checks & {"nans", "checkify", "compiles"}):
            raise UsageError(
                f"`--debug {name}` checks compiled programs, and `nojit` compiles nothing: give only one of them."
            )


def _way_out(plan: Plan) -> str:
    if plan.config.world.jittable:
        return "Use `--rung parallel` or `--rung fused`."
    return "`--debug nans` works everywhere."
