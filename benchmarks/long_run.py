"""Hours of training with a checkpoint about every ten seconds, watched from outside: does anything grow?

    python benchmarks/long_run.py --minutes 120 --cores 0   writes results/long-run.json, then what --draw writes
    python benchmarks/long_run.py --draw                    docs/images/long-run.png, and a table in docs/how-to/runs.md

All families train at the same time, each in a process of its own. Every ten seconds /proc is asked for memory,
descriptors, threads and CPU time, and the run directory for its size and progress. In the end every run gets SIGTERM,
has to leave with exit code 143, and has to go on when it is resumed. On a machine that does other work, ticks per wall
second say little; ticks per second of CPU time of the process are what can be compared.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pictures
from rounds import command, measured_on

from xladder import devices

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "long-run.json"
PICTURE = ROOT / "docs" / "images" / "long-run.png"
PAGE = ROOT / "docs" / "how-to" / "runs.md"
BEGIN, END = "<!-- long run -->\n", "<!-- end of long run -->\n"
SETTLED = 600.0  # seconds after which nothing should change any more
FAMILIES = {  # lengths that no run reaches, and of which a row of metrics is complete within seconds
    "treasurehunt": ["--epochs", "100000"],
    "hypergrid": ["--iterations", "20000000"],
    "cartpole": ["--steps", "200000000"],
    "minatar/breakout": ["--steps", "20000000"],
}
SECONDS = 10.0  # between samples
CHECKPOINT_SECONDS = 10.0  # between checkpoints of a family, by the clock, while all of them share the cores
CALIBRATION = 10.0  # seconds of CPU time in which the ticks between checkpoints are found
LEAVES_WITHIN = 1200.0  # seconds after SIGTERM, on a busy machine; scoring and pictures come after the checkpoint
CLOCK = os.sysconf("SC_CLK_TCK")
PANELS = {
    "memory of the process, MB": "anonymous_mb",
    "open descriptors": "descriptors",
    "threads": "threads",
    "run directory without metrics.csv, MB": "directory_mb",
    "metrics.csv, MB": "table_mb",
    "ticks per second of CPU time": "per_cpu_second",
    "ticks per wall second": "per_second",
}


def start(words: list[str], log: Path) -> subprocess.Popen:
    """A command of xladder, in a process of its own, that writes into a file."""
    with log.open("a") as file:
        return subprocess.Popen([sys.executable, "-m", "xladder", *words], stdout=file, stderr=subprocess.STDOUT)


def last_tick(run: Path) -> int:
    """Ticks in metrics.csv."""
    try:
        with (run / "metrics.csv").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            rows = file.read().split(b"\n")[1:-1]  # whole ones
        return int(rows[-1].split(b",")[1]) + 1
    except (OSError, ValueError, IndexError):
        return 0


def disk_bytes(folder: Path) -> int:
    """What a folder takes on the disk; files may go away meanwhile."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(Path(place) / name).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def sample(process: subprocess.Popen, run: Path, begun: float) -> dict:
    """What can be seen of a run from outside."""
    proc = Path(f"/proc/{process.pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    table = run / "metrics.csv"
    newest = max((path.name for path in (run / "checkpoints").glob("tick-*[0-9]")), default="tick-0")
    table_bytes = table.stat().st_blocks * 512 if table.exists() else 0
    return {
        "seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": cpu_seconds(process),
        "rss_mb": int(status["VmRSS"].split()[0]) / 1024,
        "anonymous_mb": int(status["RssAnon"].split()[0]) / 1024,
        "descriptors": len(list((proc / "fd").iterdir())),
        "threads": int(status["Threads"]),
        "directory_mb": (disk_bytes(run) - table_bytes) / 2**20,
        "table_mb": table_bytes / 2**20,
        "ticks": last_tick(run),
        "newest_checkpoint": int(newest.removeprefix("tick-")),
        "load": os.getloadavg()[0],
    }


def cpu_seconds(process: subprocess.Popen) -> float:
    """CPU time of a process and all its threads so far."""
    times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(times[11]) + int(times[12])) / CLOCK


def calibrate(names: list[str], folder: Path) -> dict[str, int]:
    """Ticks between checkpoints, from short runs."""
    cpu_share = CHECKPOINT_SECONDS * min(1.0, len(os.sched_getaffinity(0)) / len(names))
    found, runs = {}, {name: folder / f"{name.replace('/', '-')}-calibration" for name in names}
    processes = {
        name: start(["train", name, *FAMILIES[name], "--checkpoint-every", "0", "--out", str(run)],
                    folder / "calibration.log")
        for name, run in runs.items()
    }  # fmt: skip
    first: dict[str, tuple[int, float]] = {}
    while processes:
        time.sleep(0.5)
        for name, process in list(processes.items()):
            now = last_tick(runs[name]), cpu_seconds(process)
            if not now[0]:
                assert process.poll() is None, f"{name} ended: see {folder / 'calibration.log'}"
                continue
            ticks, spent = now[0] - first.setdefault(name, now)[0], now[1] - first[name][1]
            if ticks and spent > CALIBRATION:
                found[name] = max(1, round(ticks / spent * cpu_share))
                process.kill()
                process.wait()
                shutil.rmtree(runs[name])
                del processes[name]
    return found


def end(process: subprocess.Popen, run: Path, log: Path) -> dict:
    """Stop a run by SIGTERM and resume it; says how both went."""
    before, begun = last_tick(run), time.monotonic()
    process.send_signal(signal.SIGTERM)
    code = process.wait(LEAVES_WITHIN)
    seconds, stopped = time.monotonic() - begun, last_tick(run)
    again = start(["resume", str(run)], log)
    begun = time.monotonic()
    while again.poll() is None and last_tick(run) <= stopped and time.monotonic() - begun < 2 * LEAVES_WITHIN:
        time.sleep(1)
    resumed_in, reached = time.monotonic() - begun, last_tick(run)
    again.send_signal(signal.SIGTERM)
    return {
        "exit_code": code,
        "seconds_to_leave": round(seconds, 1),
        "ticks_lost": max(0, before - stopped),
        "resumed_in_seconds": round(resumed_in, 1),
        "resumed_on": reached > stopped,
        "exit_code_of_resumed": again.wait(LEAVES_WITHIN),
    }


def write(file: Path, found: dict) -> None:
    """The results as JSON, a sample a line."""
    text = json.dumps(found, indent=1)
    file.write_text(re.sub(r"\{\s+([^{}\[\]]*?)\s+\}", lambda match: f"{{{' '.join(match[1].split())}}}", text) + "\n")


def measure(names: list[str], minutes: float, folder: Path, file: Path) -> None:
    """Train, sample, stop and resume; the file is written again with every sample."""
    import jax

    every = calibrate(names, folder)
    found = {
        "command": command(),
        "environment": measured_on(jax.devices()[0]),
        "device": devices.describe(jax.devices()[0]),
        "note": "The machine did other work too: ticks per second of CPU time can be compared, not per wall second.",
        "cores": sorted(os.sched_getaffinity(0)),
        "minutes": minutes,
        "runs": {name: {"checkpoint_every": every[name], "samples": []} for name in names},
    }
    runs = {name: folder / name.replace("/", "-") for name in names}
    logs = {name: folder / f"{runs[name].name}.log" for name in names}
    begun, processes = time.monotonic(), {}
    for name in names:
        words = ["train", name, *FAMILIES[name], "--checkpoint-every", str(every[name]), "--out", str(runs[name])]
        found["runs"][name]["command"] = "xladder " + " ".join(words[:-2])
        processes[name] = start(words, logs[name])
    while time.monotonic() - begun < 60 * minutes:
        time.sleep(SECONDS)
        for name, process in processes.items():
            if process.poll() is None:
                found["runs"][name]["samples"].append(sample(process, runs[name], begun))
        write(file, found)
    for name in names:
        found["runs"][name]["end"] = end(processes[name], runs[name], logs[name])
        write(file, found)


def rates(samples: list[dict], window: int = 12) -> dict[str, list[float]]:
    """Ticks per wall second and per second of CPU time, over about two minutes each."""
    table: dict[str, list[float]] = {"minutes": [], "per_second": [], "per_cpu_second": []}
    for old, new in zip(samples, samples[window:], strict=False):
        ticks = new["ticks"] - old["ticks"]
        table["minutes"].append((old["seconds"] + new["seconds"]) / 120)
        table["per_second"].append(ticks / max(1e-9, new["seconds"] - old["seconds"]))
        table["per_cpu_second"].append(ticks / max(1e-9, new["cpu_seconds"] - old["cpu_seconds"]))
    return table


def table(found: dict) -> str:
    """What the page shows: quantities after ten minutes and at the end, and how each run was ended and resumed."""
    environment = found["environment"]
    commit = f", commit `{environment['git_commit'][:10]}`" if environment["git_commit"] else ""
    lines = [
        f"`{found['command']}`, {found['device']}{commit}; after ten minutes → at the end:",
        "",
        "| | checkpoints | memory, MB | descriptors | threads | directory, MB | ticks per second of CPU time | ended |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, run in found["runs"].items():
        samples, end = run["samples"], run["end"]
        settled, last = next(s for s in samples if s["seconds"] >= SETTLED), samples[-1]
        half = len(samples) // 2
        speeds = [
            (b["ticks"] - a["ticks"]) / (b["cpu_seconds"] - a["cpu_seconds"])
            for a, b in ((settled, samples[half]), (samples[half], last))
        ]
        pairs = [
            f"{settled[key]:.{digits}f} → {last[key]:.{digits}f}"
            for key, digits in (("anonymous_mb", 1), ("descriptors", 0), ("threads", 0), ("directory_mb", 1))
        ]
        ended = f"exit {end['exit_code']}, {end['ticks_lost']} ticks lost, " + (
            "resumed" if end["resumed_on"] else "NOT resumed"
        )
        saved = last["newest_checkpoint"] // run["checkpoint_every"]
        speed = f"{speeds[0]:,.4g} in the first hour, {speeds[1]:,.4g} in the second"
        lines.append(f"| {name} | {saved:,} | {' | '.join(pairs)} | {speed} | {ended} |")
    return "\n".join(lines) + "\n"


def shown(text: str) -> str:
    """The table on a page."""
    return text.partition(BEGIN)[2].partition(END)[0]


def write_page() -> None:
    """Put the table of the results into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table(json.loads(RESULTS.read_text())) + END + rest.partition(END)[2])


def draw() -> None:
    """A column per family, a row per quantity."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    runs = json.loads(RESULTS.read_text())["runs"]
    figure, axes = plt.subplots(
        len(PANELS), len(runs), figsize=(3.2 * len(runs), 1.35 * len(PANELS)), sharex=True, layout="constrained",
        squeeze=False,
    )  # fmt: skip
    for place, (column, (name, run)) in enumerate(zip(axes.T, runs.items(), strict=True)):
        samples = run["samples"]
        column[0].set_title(f"{name}\n{samples[-1]['newest_checkpoint'] // run['checkpoint_every']:,} checkpoints")
        speed = rates(samples)
        for axis, (title, key) in zip(column, PANELS.items(), strict=True):
            if key in speed:
                axis.plot(speed["minutes"], speed[key], color="#1b6ca8")
            else:
                axis.plot([s["seconds"] / 60 for s in samples], [s[key] for s in samples], color="#1b6ca8")
            axis.set_ylim(0, 1.2 * axis.dataLim.y1)
            axis.spines[["top", "right"]].set_visible(False)
            if place == 0:
                axis.set_ylabel(title.replace(" without ", "\nwithout ").replace(" per ", "\nper ").replace(
                    " of the ", "\nof the "), fontsize=8)  # fmt: skip
        column[-1].set_xlabel("minutes")
    figure.savefig(PICTURE, dpi=110)
    pictures.note(PICTURE.name)


def main() -> None:
    """Measure, or draw what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES)[:3])
    parser.add_argument("--cores", nargs="+", type=int, help="use these cores only (all)")
    parser.add_argument("--folder", type=Path, default=Path("long-run"), help="for the run directories and logs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--draw", action="store_true", help="only draw the picture and write the table")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, options.cores)  # and so do the processes it starts
    if not options.draw:
        options.folder.mkdir(parents=True, exist_ok=True)
        measure(options.families, options.minutes, options.folder, options.out)
    if options.out == RESULTS:
        draw()
        write_page()


if __name__ == "__main__":
    main()
