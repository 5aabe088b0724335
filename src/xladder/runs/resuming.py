"""How a run goes on: the checkpoint it continues from, the rung it may continue on, and what is taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from xladder.errors import UsageError
from xladder.plans import Plan, seed_groups
from xladder.registry import RUNGS, check_rung, find_rung, options_for
from xladder.rungs import layout
from xladder.runs.checkpoints import Checkpoint
from xladder.runs.directory import AGENTS, RunDirectory
from xladder.trainer import ResumeState

EXCHANGEABLE = ("sequential", "parallel", "fused", "mesh", "hosts")  # rungs whose state is the same
Say = Callable[[str], None]


def find_checkpoint(
    directory: RunDirectory, notify: Say, rung: str | None = None, mesh: str | None = None
) -> Checkpoint | None:
    """Find the newest sound checkpoint, and plan the rest of the run.

    Args:
        directory: The run; its plan is on the rung to go on on afterwards.
        say: Hears of checkpoints that are damaged.
        rung: The rung to go on on, if it is to be another.
        mesh: What lies over how many devices from now on.

    Returns:
        The checkpoint, or None if there has never been one.
    """
    checkpoint = directory.checkpoints.latest(notify)
    chosen = choose_rung(directory.plan, checkpoint, rung or ("mesh" if mesh else None))
    directory.plan = on_rung(directory.plan, chosen, mesh)
    return checkpoint


def rewind(directory: RunDirectory, checkpoint: Checkpoint | None, notify: Say) -> ResumeState | None:
    """Take a run directory back to a checkpoint, or to its beginning if there is none.

    Args:
        directory: The run.
        checkpoint: Where it goes on from.
        say: Hears of where that is.

    Returns:
        What `execute` goes on from.
    """
    if checkpoint is None:
        refuse_to_replace(directory)
        notify("There is no checkpoint yet: the run begins anew.")
        directory.write_config()  # nothing else says on which rung it is from now on
        directory.writer.begin_anew()
        return None
    metrics = directory.writer.go_back(checkpoint.facts)
    notify(f"Going on from {directory.checkpoints.path(checkpoint.step).name}.")
    if not directory.plan.config.world.jittable and not any(".worlds." in n for n in checkpoint.arrays):
        notify("Its games could not be saved, so new ones begin: not quite the run that it would have been.")
    return ResumeState(checkpoint.arrays, checkpoint.facts, metrics)


def refuse_to_replace(directory: RunDirectory) -> None:
    """Raise a `UsageError` if agents would be lost by beginning anew: a run that was killed early has none."""
    if not (directory.path / AGENTS).exists():
        return
    if not directory.writer.path.exists():
        raise UsageError(f"`{directory.path}` has imported agents and was never trained: use `xladder train`.")
    raise UsageError(
        f"`{directory.path}` has agents and no checkpoint to go on from, and they are not replaced. To score them: "
        f"{directory.way_on}"
    )


def ticks_left(plan: Plan, checkpoint: Checkpoint | None) -> int:
    """How many ticks the seeds that are next have before them."""
    if checkpoint is None:
        return int(plan.config.ticks)
    left = int(plan.config.ticks - checkpoint.facts["done"])
    more = checkpoint.facts["group"] + 1 < len(seed_groups(plan))
    return left or (int(plan.config.ticks) if more else 0)


def choose_rung(plan: Plan, checkpoint: Checkpoint | None, asked: str | None) -> str:
    """The rung to go on on; a sentence if its state is another."""
    saved = checkpoint.facts["rung"] if checkpoint else plan.rung
    if asked is None or asked == saved:
        return str(saved)
    find_rung(asked, plan.workload)
    check_rung(asked, plan.workload, plan.config)
    if checkpoint is None:
        return asked
    reason = ""
    if asked not in EXCHANGEABLE or saved not in EXCHANGEABLE:
        alone = saved if saved not in EXCHANGEABLE else asked
        reason = f"what `{alone}` holds no other can resume from; {', '.join(EXCHANGEABLE)} hold the same state"
    elif len(plan.seeds) > 1 and seed_groups(plan) != seed_groups(replace(plan, rung=asked)):
        reason = "one has all seeds side by side, the other one after another"
    elif "fused" in (asked, saved) and not plan.config.world.jittable:
        reason = "on `fused` the games are inside the program and cannot be carried"
    if reason:
        raise UsageError(f"A run saved on `{saved}` cannot go on on `{asked}`: {reason}.")
    return asked


def on_rung(plan: Plan, rung: str, mesh: str | None) -> Plan:
    """The plan on that rung, over those devices; what is learned stays the same."""
    if "mesh" not in RUNGS[rung].options:
        return replace(plan, rung=rung, options=options_for(rung, plan.options))
    if not (mesh or plan.options.mesh):
        raise UsageError(f"`{rung}` needs `--mesh`: `seeds=4`, `data=4` or both, with a comma.")
    options = replace(options_for(rung, plan.options), mesh=mesh or plan.options.mesh)
    found = layout.fit(plan.workload.family, plan.config, layout.parse(str(options.mesh)), len(plan.seeds))
    if found != plan.config:
        raise UsageError(
            f"`--mesh {options.mesh}` would need batches in {found.learner.strata} groups, and the run has "
            f"{plan.config.learner.strata} (`--learner.strata`), which cannot change while it goes on."
        )
    return replace(plan, rung=rung, options=options)
