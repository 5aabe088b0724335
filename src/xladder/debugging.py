"""What `--debug` can look for, by name, and on which rungs. Needs no JAX: `rungs/debugged.py` does the looking."""

from __future__ import annotations

from collections.abc import Iterable

from xladder.errors import UsageError, unknown
from xladder.plans import Plan

CHECKS = {
    "nans": "stop at the first value that is not a number, and say which operation made it",
    "checkify": "check every operation of a tick for nan, division by zero and indices out of bounds",
    "nojit": "run Python as it is written, so that print and breakpoint() work; slow",
    "keys": "refuse a random key that is used twice",
    "transfers": "refuse whatever passes between host and device unasked while a chunk runs",
    "compiles": "log every compilation, and why what was compiled before did not serve",
}
_ON_HOST = "its world is on the host, so that it has no program of a whole tick"


def parse(texts: Iterable[str]) -> tuple[str, ...]:
    """The checks that are named, `nans,keys` or one by one, each once."""
    names = dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip())
    for name in names:
        if name not in CHECKS:
            raise unknown("check", name, CHECKS)
    return tuple(names)


def check(checks: Iterable[str], plan: Plan) -> None:
    """Raise a `UsageError` if a plan's rung has nothing that a check could look at."""
    checks = set(checks)
    if checks and plan.rung == "torch":
        raise UsageError(
            f"`--debug {min(checks)}` looks into JAX, and `torch` runs none: use `--rung parallel`, "
            "or what PyTorch has, `torch.autograd.set_detect_anomaly(True)`."
        )
    for name in sorted(checks & {"checkify", "transfers", "nojit"}) if plan.rung == "mesh" else ():
        raise UsageError(
            f"`--debug {name}` looks at the program of one device, and `mesh` has several: use `--rung parallel`, "
            "which runs the same ticks on one."
        )
    whole = plan.rung == "fused" or (plan.rung == "parallel" and plan.config.world.jittable)
    for name in sorted(checks & {"checkify", "transfers"}):
        if not whole:
            why = _ON_HOST if name == "checkify" else "its loop on the host hands something over in every call"
            raise UsageError(f"`--debug {name}` makes no sense here on `{plan.rung}`: {why}. {_way_out(plan)}")
    if "nojit" in checks:
        if plan.rung == "fused":
            raise UsageError(
                "`--debug nojit` cannot be had on `fused`, a program of many ticks: use `--rung parallel`, "
                "which runs the same ticks one by one."
            )
        if plan.rung == "actors":
            raise UsageError(
                "`--debug nojit` cannot be had on `actors`: use `--rung sequential`, the same in one loop."
            )
        if plan.rung == "parallel" and not whole:
            raise UsageError("`--debug nojit` cannot be had where worlds and device overlap: use `--rung sequential`.")
        for name in sorted(checks & {"nans", "checkify", "compiles"}):
            raise UsageError(
                f"`--debug {name}` looks into compiled programs, and `nojit` leaves none: give one of them."
            )


def _way_out(plan: Plan) -> str:
    if plan.config.world.jittable:
        return "Use `--rung parallel` or `--rung fused`."
    return "`--debug nans` works everywhere."
