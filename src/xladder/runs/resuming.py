"""Resume a run: find its checkpoint, check the rung it may continue on, and discard what came after."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from xladder.core.packages import program
from xladder.errors import DamagedRun, UsageError, printable
from xladder.plans import Plan, seed_groups
from xladder.registry import RUNGS, check_rung, find_rung, options_for
from xladder.rungs import layout
from xladder.runs.checkpoints import Checkpoint
from xladder.runs.directory import AGENTS, RunDirectory
from xladder.runs.folders import typed
from xladder.runs.plan_files import read_run_settings
from xladder.settings import as_whole
from xladder.trainer import ResumeState

EXCHANGEABLE = ("sequential", "parallel", "fused", "mesh", "hosts")  # rungs that share a state format
Notify = Callable[[str], None]
FACTS: Mapping[str, tuple[type, ...]] = {
    "rung": (str,),
    "group": (int,),
    "done": (int,),
    "compile_seconds": (int, float),
    "tick_seconds": (int, float),
    "snapshots": (list,),
    "metrics_bytes": (int,),
    "metrics_sha256": (str,),
    "elapsed_seconds": (int, float),
}
"""What a checkpoint says of a run besides its arrays."""


def find_checkpoint(
    directory: RunDirectory, notify: Notify, rung: str | None = None, mesh: str | None = None
) -> Checkpoint | None:
    """Find the newest intact checkpoint, and plan the rest of the run.

    Args:
        directory: The run; its plan is changed to the rung and mesh it continues on.
        notify: Called with a line about each damaged checkpoint.
        rung: The rung to continue on, if not the same.
        mesh: The device mesh to continue on, if not the same.

    Returns:
        The checkpoint, or None if none was ever saved.
    """
    checkpoint = find_latest(directory, notify)
    chosen = choose_rung(directory.plan, checkpoint, rung or ("mesh" if mesh else None))
    directory.plan = on_rung(directory.plan, chosen, mesh)
    return checkpoint


def find_latest(directory: RunDirectory, notify: Notify) -> Checkpoint | None:
    """The newest intact checkpoint of a run, after a check that it has what a rung saves; None if there is none."""
    checkpoint = directory.checkpoints.latest(notify)
    if checkpoint is None:
        return None
    plan, facts = directory.plan, checkpoint.facts
    where = f"`{directory.checkpoints.path(checkpoint.step)}`"
    for name, kinds in FACTS.items():
        if type(facts.get(name)) not in kinds:
            raise DamagedRun(f"{where} was not written by xladder: its `facts` have no valid `{name}`.")
    groups = len(seed_groups(replace(plan, rung=facts["rung"]))) if facts["rung"] in RUNGS else 0
    finished = {name.split(".")[1] for name in checkpoint.arrays if name.startswith("finished.") and "." in name}
    if not (
        0 <= facts["group"] < groups
        and 0 <= facts["done"] <= plan.config.ticks
        and all(str(number) in finished for number in range(facts["group"]))
        and facts["metrics_bytes"] >= 0
        and all(
            _is_snapshot(one, plan) and f"snapshots.{i}" in checkpoint.arrays
            for i, one in enumerate(facts["snapshots"])
        )
    ):
        raise DamagedRun(f"{where} does not fit this run: how far it is, or what it has kept, cannot be.")
    return checkpoint


def _is_snapshot(entry: Any, plan: Plan) -> bool:
    """Whether an entry is the tick, the label and the seed of a picture; those of version 0.1 may lack the seed."""
    if not isinstance(entry, list) or len(entry) not in (2, 3) or [type(part) for part in entry[:2]] != [int, str]:
        return False
    return len(entry) == 2 or entry[2] is None or entry[2] in plan.seeds


def recorded_cluster(directory: RunDirectory) -> str:
    """The address of the Ray cluster on which a run trained; empty if there was none. It is never used by itself."""
    recorded = (read_run_settings(directory.path).get("options") or {}).get("ray")
    return printable(recorded) if recorded and "ray" in RUNGS[directory.plan.rung].options else ""


def move_to_cluster(directory: RunDirectory, address: str) -> None:
    """Continue a run on another Ray cluster; `local` starts one on this machine."""
    plan = directory.plan
    if "ray" not in RUNGS[plan.rung].options:
        raise UsageError(f"`--ray` is for `actors`, and `{directory.path}` is a run on `{plan.rung}`.")
    directory.plan = replace(plan, options=replace(plan.options, ray=None if address == "local" else address))


def refuse_other_workers(given: Iterable[str], dashes: str) -> None:
    """Raise a `UsageError` if another number of actors or shards is among the names of options, which have `dashes`."""
    for name in (f"{dashes}actors", f"{dashes}shards"):
        if name in given:
            raise UsageError(
                f"`{name}` cannot change when a run is resumed: its checkpoints hold the envs of each actor and the "
                "replay of each shard. Leave it out."
            )


def rewind(directory: RunDirectory, checkpoint: Checkpoint | None, notify: Notify) -> ResumeState | None:
    """Rewind a run directory to a checkpoint, or to its start if there is none.

    Args:
        directory: The run.
        checkpoint: The checkpoint to continue from.
        notify: Called with a line that says where the run continues.

    Returns:
        The state that `execute` continues from.
    """
    if checkpoint is None:
        refuse_to_replace(directory)
        notify("There is no checkpoint yet: the run starts over.")
        directory.write_config()  # records the rung it now runs on
        directory.writer.start_over()
        return None
    metrics = directory.writer.rewind(checkpoint.facts)
    rows = {values.shape for values in metrics.values()}
    needed = checkpoint.facts["done"] // directory.plan.ticks_per_row
    if needed and not ({"loss", "return"} <= metrics.keys() and all(shape[1] >= needed for shape in rows)):
        raise DamagedRun(f"`{directory.writer.path}` has not the rows of {checkpoint.facts['done']:,} ticks.")
    notify(f"Resuming from {directory.checkpoints.path(checkpoint.step).name}.")
    if not directory.plan.config.world.jittable and not any(".worlds." in n for n in checkpoint.arrays):
        notify("The state of its envs could not be saved, so new episodes start: the run will differ slightly.")
    return ResumeState(checkpoint.arrays, checkpoint.facts, metrics)


def lengthen(
    directory: RunDirectory, checkpoint: Checkpoint | None, lengths: Mapping[str, int | None], notify: Notify
) -> bool:
    """Make a run longer, if a length is given, by the name of its unit. Returns whether one was."""
    given = {unit: as_whole(length) for unit, length in lengths.items() if length is not None}
    if not given:
        return False
    plan = directory.plan
    unit = plan.workload.length
    if set(given) != {unit}:
        raise UsageError(f"The length of `{plan.workload.name}` is counted in {unit}: give `--{unit}`.")
    if checkpoint is None:
        raise UsageError(f"`{directory.path}` has no checkpoint to go on from, so it cannot be made longer.")
    if len(seed_groups(plan)) > 1:
        raise UsageError(
            f"`{directory.path}` trained its seeds one after another, and only the last one's state is kept: it cannot "
            "be made longer."
        )
    for line in directory.lengthen(given[unit]):
        notify(line)
    return True


def refuse_to_replace(directory: RunDirectory) -> None:
    """Raise a `UsageError` if starting over would overwrite trained agents; a run that was killed early has none."""
    if not (directory.path / AGENTS).exists():
        return
    if not directory.writer.path.exists():
        plan, folder = directory.plan, typed(directory.path)
        raise UsageError(
            f"`{directory.path}` has imported agents and was never trained. To train them: {program()} train "
            f"{plan.workload.name} --config {folder}/config.json --from {folder}"
        )
    raise UsageError(
        f"`{directory.path}` has agents but no checkpoint to resume from, and starting over would overwrite them. To "
        f"evaluate them: {directory.way_on}"
    )


def ticks_left(plan: Plan, checkpoint: Checkpoint | None) -> int:
    """Ticks left for the group of seeds that is trained next."""
    if checkpoint is None:
        return int(plan.config.ticks)
    left = int(plan.config.ticks - checkpoint.facts["done"])
    more = checkpoint.facts["group"] + 1 < len(seed_groups(plan))
    return left or (int(plan.config.ticks) if more else 0)


def choose_rung(plan: Plan, checkpoint: Checkpoint | None, requested: str | None) -> str:
    """Choose the rung to continue on; a `UsageError` if it cannot use the checkpoint's state."""
    saved = checkpoint.facts["rung"] if checkpoint else plan.rung
    if requested is None or requested == saved:
        return str(saved)
    find_rung(requested, plan.workload)
    check_rung(requested, plan.workload, plan.config)
    if checkpoint is None:
        return requested
    reason = ""
    if requested not in EXCHANGEABLE or saved not in EXCHANGEABLE:
        alone = saved if saved not in EXCHANGEABLE else requested
        reason = f"the state of `{alone}` fits no other rung; only {', '.join(EXCHANGEABLE)} share theirs"
    elif len(plan.seeds) > 1 and seed_groups(plan) != seed_groups(replace(plan, rung=requested)):
        reason = "one trains all seeds at once, the other one after another"
    elif "fused" in (requested, saved) and not plan.config.world.jittable:
        reason = "on `fused` the envs are inside the compiled program, and their state cannot be moved"
    if reason:
        raise UsageError(f"A run saved on `{saved}` cannot resume on `{requested}`: {reason}.")
    return requested


def on_rung(plan: Plan, rung: str, mesh: str | None) -> Plan:
    """Move a plan to a rung and device mesh, without changing what is learned."""
    if "mesh" not in RUNGS[rung].options:
        return replace(plan, rung=rung, options=options_for(rung, plan.options))
    if not (mesh or plan.options.mesh):
        raise UsageError(f"`{rung}` needs `--mesh`: `seeds=4`, `data=4` or both, with a comma.")
    options = replace(options_for(rung, plan.options), mesh=mesh or plan.options.mesh)
    found = layout.fit(plan.workload.family, plan.config, layout.parse(str(options.mesh)), len(plan.seeds))
    if found != plan.config:
        raise UsageError(
            f"`--mesh {options.mesh}` would need batches in {found.learner.strata} groups, but the run has "
            f"{plan.config.learner.strata} (`--learner.strata`), which cannot change when it is resumed."
        )
    return replace(plan, rung=rung, options=options)
