"""Run the same experiment on several rungs, one after another, each in its own process.

Each has its own process because peak memory only ever grows, and because PyTorch's and XLA's threads would otherwise
compete.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from xladder import user_code
from xladder.core.packages import is_installed
from xladder.devices import DeviceName
from xladder.errors import UsageError, XladderError
from xladder.plans import Plan, allow_imports, check_types, plan
from xladder.registry import RUNGS, Workload, find_rung, find_workload, options_of
from xladder.runs.environment import versions
from xladder.runs.plan_files import describe_plan
from xladder.settings import chosen, to_dict
from xladder.worlds import names

if TYPE_CHECKING:
    from xladder.protocols import Config


def compare(
    workload: str | object,
    rungs: Sequence[str] | None = None,
    on_row: Callable[[dict[str, Any]], None] | None = None,
    mesh: str | None = None,
    *,
    on_left_out: Callable[[str, str], None] | None = None,
    seed: int = 0,
    seeds: int | Sequence[int] = 1,
    preset: str = "default",
    protocol: str | None = None,
    config: Config | None = None,
    device: DeviceName | None = None,
    imports: Sequence[str] = (),
    **fields: Any,
) -> dict[str, Any]:
    """Run the same experiment on several rungs, one after another, each in its own process.

    It is short by default, as that of `xladder compare`: long enough to time learning, which begins early, with a small
    replay memory and no evaluation in between (3,328 steps of `cartpole`, 40 epochs of `treasurehunt`, 500 iterations
    of `hypergrid`). Fields that are given win: `steps=20_000` is a longer one. Whole runs are compared with a config,
    which is taken as it is: `config=xladder.plan("cartpole").config`.

    Args:
        workload: As in `train`.
        rungs: Keys of `xladder.RUNGS`; all single-device rungs that can run this if not given. Then `compiled` is left
            out where PyTorch has nothing to compile with, or cannot compile this.
        on_row: Called with every row as it is measured.
        mesh: The device mesh, for the rung of that name.
        on_left_out: Called with `compiled` and the reason where it is left out.
        seed: The first seed.
        seeds: Number of consecutive seeds, or a list of seeds; times are then per seed.
        preset: The named settings to start from.
        protocol: The published protocol to start from, where the workload has any.
        config: Settings to start from instead: a config object of the workload. Its length and memory are kept.
        device: `"cpu"`, `"gpu"` or `"tpu"`; the best that JAX finds if not given.
        imports: Modules of your own to import first, also in the measuring processes.
        **fields: Fields of the config, as in `train`.

    Returns:
        `rows`, one dict per rung, and the device, versions and config they were measured with. `seconds_per_TICK` is
        the median after learning has started. `sampling_seconds` and `update_seconds` are its two parts; on the jitted
        rungs they are timed after the last tick, when trajectories may be longer than during training; there an update
        is a tick less its sampling, and None if sampling by itself took longer than the tick. `speedup` is
        relative to the faster of the rows `torch` and `compiled`, which `reference` names; both are None if there is
        neither. `left_out` says which rung was left out and why, if one was. `return_last` is a mean over seeds, as
        are the exact measurements of a GFlowNet; `…_ci95` is the half width of its 95 % interval, and `…_per_seed` has
        the values.
    """
    check_types(rungs=rungs, on_row=on_row, on_left_out=on_left_out, mesh=mesh, preset=preset, protocol=protocol)
    allow_imports(imports)
    name = names.name_of(workload)
    user_code.allow_named([name])
    found = find_workload(name)
    if config is None:
        presets = found.family.presets(found.name, protocol)
        config = found.family.compared(chosen(presets, preset, protocol))
    mine: dict[str, Any] = {"seed": seed, "seeds": seeds, "device": device, "preset": preset, "protocol": protocol}
    mine |= {"config": config, **fields}
    named = rungs is not None
    if rungs is None:
        rungs = default_rungs(found, plan(workload, **mine).config, mesh)
    rungs = [rungs] if isinstance(rungs, str) else list(rungs)
    for rung in rungs:
        check_types(rung=rung)
        find_rung(rung, found)
    plans = [plan(workload, rung, options=options_of(rung, mesh), **mine) for rung in dict.fromkeys(rungs)]
    if not plans:
        raise UsageError("`rungs` is empty: give some, such as ['torch', 'fused'].")
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for one in plans:
        try:
            rows.append(measure_apart(one))
        except XladderError as error:
            if named or one.rung != "compiled" or error.exit_code != UsageError.exit_code:
                raise
            left_out[one.rung] = str(error).removeprefix(f"On the `{one.rung}` rung: ")
            if on_left_out:
                on_left_out(one.rung, left_out[one.rung])
        else:
            if on_row:
                on_row(rows[-1])
    return summarise(plans[0], rows) | ({"left_out": left_out} if left_out else {})


def default_rungs(workload: Workload, config: Config, mesh: str | None = None) -> list[str]:
    """The rungs on one device that can run this config with the packages that are installed; `mesh` if it is given."""
    missing = {*workload.missing, *workload.family.missing(config), *rungs_without_package()}
    return [name for name in RUNGS if name not in missing and (RUNGS[name].one_device or (mesh and name == "mesh"))]


def rungs_without_package() -> list[str]:
    """The rungs on one device whose package is not installed."""
    extras = {name: rung.extra for name, rung in RUNGS.items() if rung.one_device and rung.extra}
    return [name for name, extra in extras.items() if not is_installed(extra)]


def summarise(plan: Plan, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What `compare` returns for rows that have been measured; also sets their speed-up.

    Args:
        plan: The plan of any of the rungs.
        rows: The rows, at least one.
    """
    time_key = f"seconds_per_{plan.workload.tick}"
    reference = min((row for row in rows if RUNGS[row["rung"]].in_pytorch), key=lambda row: row[time_key], default=None)
    for row in rows:
        row["speedup"] = reference[time_key] / row[time_key] if reference else None
    return {
        "workload": plan.workload.name,
        "rows": rows,
        "reference": reference["rung"] if reference else None,
        "device": rows[0]["device"],
        "versions": versions(),
        "seeds": len(plan.seeds),
        "config": to_dict(plan.config),
    }


def measure_apart(plan: Plan) -> dict[str, Any]:
    """Call `measure` in a new process."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "xladder.runs.measure"],
        input=json.dumps(describe_plan(plan) | {"imports": user_code.for_children(to_dict(plan.config))}),
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1:] or [""]
    try:
        answer = json.loads(last[0])
    except ValueError:
        lines = done.stderr.strip().splitlines()[-1:] or [f"it exited with code {done.returncode} without a message"]
        raise XladderError(f"The `{plan.rung}` rung could not be measured: {lines[0]}") from None
    if "error" in answer:
        failed = XladderError(f"On the `{plan.rung}` rung: {answer['error']}")
        failed.exit_code = answer["exit_code"]
        raise failed
    return answer
