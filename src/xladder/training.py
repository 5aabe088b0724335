"""Train from Python: start or resume a run, and record it in a run directory if one is given.

Programs call `train` and `resume`. The command line parses its flags and calls `record`, which they share.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from xladder import devices, program_cache, user_code
from xladder.callbacks import STOPPED, Callback, CallbackObserver, Interrupts, Observers
from xladder.errors import Diverged, Interrupted, PeerLost, ResourceError, UsageError, UserCodeFailed, out_of_memory
from xladder.execution import execute
from xladder.plans import Plan, allow_imports, check_types, is_whole, plan
from xladder.progress import Drawing, drawing
from xladder.registry import RungOptions
from xladder.results import Result
from xladder.runs import resuming
from xladder.runs.directory import AGENTS, Keeping, RunDirectory
from xladder.runs.disk import write_json
from xladder.runs.folders import as_path, folder_for
from xladder.runs.keeping import DiskCheckpointer
from xladder.runs.loading import load
from xladder.runs.plan_files import run_metadata
from xladder.runs.recording import Recorder, episodes_of, headline
from xladder.runs.replays import ReplayRecorder
from xladder.runs.starting import Beginning, find_beginning, keep_beginning, kept_beginning
from xladder.runs.trackers import check_trackers, make_trackers
from xladder.settings import as_whole
from xladder.stopwatch import Stopwatch
from xladder.trainer import Observer, OnNan, ResumeState

if TYPE_CHECKING:
    from xladder.protocols import Config


def train(
    workload: str | object,
    rung: str | None = None,
    *,
    seed: int = 0,
    seeds: int | Sequence[int] = 1,
    preset: str = "default",
    protocol: str | None = None,
    config: Config | None = None,
    device: devices.DeviceName | None = None,
    out: str | Path | None = None,
    name: str | None = None,
    tags: Sequence[str] = (),
    resume: bool = False,
    checkpoint_every: int | None = None,
    keep: int = 2,
    on_nan: OnNan = "stop",
    eval_episodes: int | None = None,
    record_every: int | None = None,
    ticks_per_row: int | None = None,
    track: Sequence[str] = (),
    callback: Callback | None = None,
    progress: bool | None = None,
    threads: int | None = None,
    mesh: str | None = None,
    actors: int | None = None,
    shards: int | None = None,
    ray: str | None = None,
    lock_step: bool | None = None,
    options: RungOptions | None = None,
    imports: Sequence[str] = (),
    start_from: str | Path | Result | None = None,
    **fields: Any,
) -> Result:
    """Train a workload on a rung.

    Ctrl-C stops the run after the current chunk (about 0.7 seconds), saves it if `out` is given, and then raises
    `xladder.Interrupted`, a `KeyboardInterrupt` whose `result` is what was trained. A second Ctrl-C exits at once, and
    so does one while the rung starts or while the trained agents are evaluated. SIGTERM is left to the calling program.

    Args:
        workload: The name of a workload or world, such as `"treasurehunt"`, `"cartpole"` or `"atari/pong"`, or a world
            of your own: an object or class with the API of gymnax, Gymnasium, JaxMARL, PettingZoo, sorrel or
            `xladder.worlds.flow`.
        rung: How to execute it: a key of `xladder.RUNGS`; the workload's default if not given.
        seed: The first seed.
        seeds: Number of consecutive seeds, or a list of distinct seeds.
        preset: The named settings to start from.
        protocol: The published protocol to start from, where the workload has any.
        config: Settings to start from instead: a config object of the workload, such as `xladder.load(run).config`.
        device: `"cpu"`, `"gpu"` or `"tpu"`; the best that JAX finds if not given.
        out: The run directory, with the same contents as `xladder train --out`: config, environment, metrics, events,
            checkpoints, agents, score, curves, replay and log. Nothing is written if not given.
        name: A name for the run, whose directory is then `runs/NAME`; in place of `out`.
        tags: Words to find the run by (`xladder runs --tag`).
        resume: Resume the run in `out` if there is one.
        checkpoint_every: Ticks between checkpoints; about once a minute if not given, never if 0.
        keep: Number of checkpoints to keep, besides the best.
        on_nan: `"stop"` or `"continue"` when a loss or parameter is NaN or infinite.
        eval_episodes: Episodes of the evaluation at the end, if `out` is given; with 0, no score and no replay.
        record_every: Save a replay every so many epochs, steps, frames or iterations, if `out` is given.
        ticks_per_row: Ticks per row of metrics; 1 if not given, more in runs that would have more than 20,000 rows.
        track: Also send the metrics to `"wandb"` or `"trackio"`, if `out` is given.
        callback: A function that is called between chunks with a `Progress`. The run stops if it returns True or
            calls `progress.stop()`. If it raises, the run is saved and the exception is raised here.
        progress: Whether to show a progress bar; by default only on a terminal or in a notebook.
        threads: PyTorch threads on `torch`, `compiled` and `hybrid`; the best number is measured if not given.
        mesh: The device mesh: `"seeds=4"`, `"data=2"` or both, separated by a comma (implies `rung="mesh"`).
        actors: Number of actor processes, on `actors`.
        shards: Number of replay shards, each its own process, on `actors`.
        ray: HOST:PORT of the Ray cluster to use on `actors`; a local Ray is started if not given.
        lock_step: Whether actors and learner wait for each other, on `actors`.
        options: These rung options as one object instead.
        imports: Modules of your own to import first.
        start_from: Start from trained agents instead of fresh ones: a run directory, a file of PyTorch, sorrel or
            safetensors, or a result. With the optimiser's state, if a run has a checkpoint of it.
        **fields: Fields of the config, nested ones as dicts: `epochs=1000, learner={"lr": 3e-4}`. All of them may be
            given as one mapping, `changes={"epochs": 1000}`.

    Returns:
        Metrics [seed, row], parameters and the path of the run directory, if there is one.

    Raises:
        UsageError: An invalid name, value or path; nothing has been started or written.
        UserCodeFailed: A function of your own failed during the run; the run directory is removed if nothing was
            trained until then.
        Diverged: A loss or parameter became nan or infinite.
        Interrupted: Ctrl-C stopped the run; `result` holds what was trained.
    """
    given = RungOptions(threads=threads, mesh=mesh, actors=actors, shards=shards, ray=ray, lock_step=lock_step or None)
    if options is not None and given != RungOptions():
        raise UsageError("`options` already holds the rung options: set `threads`, `mesh`, … there, not as keywords.")
    made = plan(
        workload,
        rung,
        seed=seed,
        seeds=seeds,
        device=device,
        preset=preset,
        protocol=protocol,
        config=config,
        options=options or given,
        ticks_per_row=ticks_per_row,
        imports=imports,
        **fields,
    )
    if isinstance(tags, str):
        raise UsageError(f"`tags` is {tags!r}, but it has to be a list of them: `tags=[{tags!r}]`.")
    check_types(tags=tags, track=track)
    if start_from is not None and not isinstance(start_from, str | PathLike | Result):
        raise UsageError(f"`start_from` is {start_from!r}, but it has to be a run directory, a file or a result.")
    keeping = Keeping(checkpoint_every, keep, on_nan, eval_episodes, record_every, tuple(track), tuple(tags))
    keeping.check()
    check_trackers(keeping.track)
    out = folder_for(name, out, existing=resume)
    beginning = None if start_from is None else find_beginning(start_from, made)
    if out is not None:
        if resume and (Path(out) / "config.json").exists():
            return _resume(Path(out), rung, mesh, callback, progress, made)
        directory = RunDirectory.create(out, made, keeping)
        if beginning:
            keep_beginning(directory, beginning)
        try:
            return _watch(made, callback, progress, directory=directory)
        except (UsageError, UserCodeFailed):
            directory.discard()
            raise
    need_out = {"resume": resume, "checkpoint_every": checkpoint_every, "eval_episodes": eval_episodes}
    for word, value in (need_out | {"tags": tags, "record_every": record_every, "track": track}).items():
        if value:  # with 0, what happens without `out` anyway is asked for
            raise UsageError(f"`{word}` needs `out`: without it, nothing of a run is saved.")
    return _watch(made, callback, progress, on_nan=on_nan, beginning=beginning)


def resume(
    path: str | Path,
    *,
    rung: str | None = None,
    mesh: str | None = None,
    ray: str | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    imports: Sequence[str] = (),
    objects: Sequence[Any] = (),
    changed_code: bool = False,
    **length: int,
) -> Result:
    """Resume a run that was stopped or killed from its last intact checkpoint.

    On the same machine the result is bit-identical to an uninterrupted run. Checkpoint settings are read from the run
    directory.

    Args:
        path: The run directory.
        rung: Continue on another rung; sequential, parallel, fused, mesh and hosts can replace each other.
        mesh: Continue on another device mesh, such as `"data=2"` (implies `rung="mesh"`).
        ray: HOST:PORT of the Ray cluster to continue on, for a run on `actors`; `"local"` starts one.
        callback: As in `train`.
        progress: As in `train`.
        imports: Modules of your own that the run needs; nothing is imported just because a run names it.
        objects: Worlds, torsos and rewards that were passed as objects when the run was trained, made the same way.
        changed_code: Whether to use them even if they have changed since the run started.
        **length: A new length, to train a run on that is finished: `epochs=2000`, `steps=…`, `iterations=…`.

    Returns:
        The whole run, as `train` would have returned it; for a finished run, the same as `load`.

    Raises:
        UsageError: An invalid name, value or path; the run is as it was.
        UserCodeFailed: A function of your own failed during the run.
        Diverged: A loss or parameter became nan or infinite.
        Interrupted: Ctrl-C stopped the run; `result` holds what was trained.
    """
    check_types(rung=rung, mesh=mesh, ray=ray)
    for unit, value in length.items():
        if value is not None and not is_whole(as_whole(value)):
            raise UsageError(f"`{unit}` is {value!r}, but it has to be a whole number.")
    allow_imports(imports, objects)
    resuming.refuse_other_workers(length, "")
    with user_code.accepting_changes(changed_code):
        return _resume(as_path(path, "path"), rung, mesh, callback, progress, length=length, ray=ray)


def _resume(
    path: Path,
    rung: str | None,
    mesh: str | None,
    callback: Callback | None,
    progress: bool | None,
    expected: Plan | None = None,
    length: Mapping[str, int | None] | None = None,
    ray: str | None = None,
) -> Result:
    """Resume a run; with `expected`, only if its plan is that one; with `length`, up to there."""
    directory = RunDirectory.open(path)
    try:
        if expected and run_metadata(directory.plan) != run_metadata(expected):
            raise UsageError(f"`{path}` holds a different run: choose another `out`, or call `xladder.resume` on it.")
        lines: list[str] = []

        def log(line: str) -> None:
            directory.log(line)
            lines.append(line)

        if ray is not None:
            resuming.move_to_cluster(directory, ray)
        checkpoint = resuming.find_checkpoint(directory, log, rung, mesh)
        longer = resuming.lengthen(directory, checkpoint, length or {}, log)
        if directory.is_finished and not longer:
            return load(path)
        resume_state = resuming.rewind(directory, checkpoint, log)
        return _watch(directory.plan, callback, progress, directory=directory, resume_state=resume_state, lines=lines)
    finally:
        directory.lock.release()


def _watch(
    plan: Plan,
    callback: Callback | None,
    progress: bool | None,
    *,
    directory: RunDirectory | None = None,
    resume_state: ResumeState | None = None,
    lines: Sequence[str] = (),
    on_nan: OnNan = "stop",
    beginning: Beginning | None = None,
) -> Result:
    """Train with progress display, callback and Ctrl-C handling, into a directory if there is one."""
    clock = Stopwatch()
    program_cache.enable()
    with drawing(plan, progress) as drawn, Interrupts() as interrupts:
        observers: list[Observer] = [interrupts]
        called = (
            CallbackObserver(plan, callback, directory.path if directory else None) if callback is not None else None
        )
        if called:
            observers.append(called)
        for line in lines:
            drawn.show(line)
        if directory:

            def trained(saved: bool) -> None:
                interrupts.end_training()

            result = record(directory, resume_state, drawn=drawn, observers=observers, trained=trained).result
            drawn.show(f"Everything is in {directory.path}")
        else:
            drawn.show(headline(plan, devices.find(plan.device)))
            around = partial(beginning.around, plan) if beginning else None
            clock.lap("start-up")
            result = execute(plan, Observers([drawn, *observers]), on_nan=on_nan, around=around)
            clock.take(result.phases)
            result.phases = clock.phases()
        drawn.close()
    if called and called.error:
        if directory:
            directory.log("".join(traceback.format_exception(called.error)))
        raise called.error
    if interrupts.signal:
        hint = f" Resume with: xladder.resume({str(directory.path)!r})" if directory else ""
        raise Interrupted(f"Stopped after {result.units_done:,} {plan.workload.length}.{hint}", result)
    return result


class Recorded(NamedTuple):
    """A recorded run: its result, score and pictures."""

    result: Result
    score: dict[str, Any] | None
    """The evaluation at the end; None if there was none."""
    pictures: dict[str, Path]
    """Picture files by name."""
    stopped: int
    """The signal that stopped the run, or 0."""


def record(
    directory: RunDirectory,
    resume_state: ResumeState | None = None,
    *,
    drawn: Drawing | None = None,
    observers: Sequence[Observer] = (),
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    prepare: Callable[[], None] = lambda: None,
    trained: Callable[[bool], None] = lambda saved: None,
    begun: float | None = None,
) -> Recorded:
    """Train into a run directory until its plan is complete, and write everything that belongs there.

    Args:
        directory: The run directory. Its lock is released at the end, whatever happens.
        resume_state: The checkpoint to continue from; start afresh if None.
        drawn: Shows the progress.
        observers: Further observers, which may stop the run.
        around: Wraps the rung's `start`, to debug or profile what it runs.
        prepare: Called first, to set up JAX.
        trained: Called when training is over and the agents are written; its argument says whether the final state
            is checkpointed.
        begun: When the command or call began, by `time.perf_counter`; now if not given.

    Returns:
        The result, its score and its pictures.
    """
    clock = Stopwatch(begun)
    try:
        prepare()
        return _record(directory, resume_state, drawn or Drawing(), observers, around, trained, clock)
    except OSError as error:
        raise ResourceError(
            f"`{directory.path}` cannot be written any more: {error.strerror or error}. What is already there is "
            f"kept. Once it is writable again: {directory.way_on}"
        ) from None
    except Diverged as error:
        with suppress(OSError):
            write_json(directory.path / "diverged.json", error.report or {"found": str(error)})
            directory.log(traceback.format_exc())
        raise
    except PeerLost as error:
        directory.log(str(error))
        raise PeerLost(f"{error} Resume with: {directory.resume_command}") from None
    except UsageError:
        raise
    except BaseException as error:
        directory.log(traceback.format_exc())
        if out_of_memory(error):
            directory.discard()
        raise
    finally:
        with suppress(OSError):
            directory.writer.close()
        directory.lock.release()


Around = Callable[[Callable[..., Any]], Callable[..., Any]]


def _after(first: Around, then: Around | None) -> Around:
    return lambda start: then(first(start)) if then else first(start)


def _record(
    directory: RunDirectory,
    resume_state: ResumeState | None,
    drawn: Drawing,
    observers: Sequence[Observer],
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None,
    trained: Callable[[bool], None],
    clock: Stopwatch,
) -> Recorded:
    plan = directory.plan
    recorder = Recorder(directory, drawn.show)
    drawn.show(recorder.begin(devices.find(plan.device)))
    note = plan.workload.family.note(plan.config)
    if note:
        drawn.show(note)
    checkpointer = DiskCheckpointer(directory, recorder.announce)
    checkpointer.last = directory.checkpoints.newest()
    trackers = make_trackers(directory.keeping.track, plan, directory.path.name, recorder.announce)
    replays = [ReplayRecorder(directory, every, recorder.announce)] if (every := directory.keeping.record_every) else []
    everybody = Observers([recorder, drawn, *trackers, *replays, *observers])
    beginning = None if resume_state else kept_beginning(directory)
    if beginning:
        around = _after(partial(beginning.around, plan), around)
    clock.lap("start-up")
    result = execute(plan, everybody, checkpointer, resume_state, directory.keeping.on_nan, around)
    clock.take(result.phases)
    result.plan, result.path = directory.plan, directory.path
    directory.save_agents(result.params)  # first, because what follows may take long or be interrupted
    trained(checkpointer.keeps and not checkpointer.failures)
    if checkpointer.failures:
        raise ResourceError(
            f"The last checkpoint could not be saved; the one before is {checkpointer.last or 'none'}. The trained "
            f"agents are in {directory.path / AGENTS}. Free some disk space, then: {directory.way_on}"
        )
    directory.write_pending()
    stopped = everybody.stop()
    if stopped not in (0, STOPPED):  # by a signal or an error in the callback: skip the evaluation
        for tracker in trackers:
            tracker.close()
        return Recorded(result, None, directory.finish(result), stopped)
    score, episodes = None, episodes_of(directory)
    if episodes:
        with drawn.busy("evaluating the agents"):
            clock.lap("rest")
            score = result.evaluate(episodes)
            clock.lap("evaluation")
    for tracker in trackers:
        tracker.close(score)
    clock.lap("rest")
    with drawn.busy("drawing"):
        pictures = directory.finish(result, score)
    clock.lap("pictures")
    result.phases = clock.phases()
    directory.add_phases(result.phases)
    if not stopped or result.is_complete:
        directory.mark_finished()
    return Recorded(result, score, pictures, 0)
