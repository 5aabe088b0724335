"""Every peer beside us, in one run on one machine: a table of rates, compile times, whole times, scores and memory.

    python benchmarks/peers.py --device gpu                    under eight minutes on one H200
    python benchmarks/peers.py --device cpu --cases cartpole
    python benchmarks/peers.py --tiny                          whether it runs, on a CPU
    python benchmarks/peers.py --make                          prints how each peer's environment is made
    python benchmarks/peers.py --table FILE                    a file of results as the table of the docs

Rows go into the file of results in the place of earlier ones of the same name; the others stay as they are.

A peer has an environment of its own, `build/environments/NAME` (or below `--environments`): a Python in `bin/python`
and, where the peer is a script rather than a package, its repository in `src`. If the folder has an executable `py`,
that is the Python of every peer without one. A peer that is not there is a row that says so, with the line that
installs it.

{rules}
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypergrid
import treasurehunt
from peer_tables import CASES, RULES, markdown, merged, runs, show
from rich.console import Console
from rounds import measured_on, peer_row

from xladder import devices
from xladder.runs.disk import write_json

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / "build" / "environments"
LACKS = """import sys, importlib.util
lacks = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
sys.exit(f"it has no {', '.join(lacks)}" if lacks else 0)"""
SCRIPT = {name: str(HERE / f"{name}_peer.py") for name in ("sorrel", "gfnx", "torchgfn", "purejax", "cleanrl")}


@dataclass(frozen=True)
class Peer:
    """A library to compare with, and how to make its environment; `{}` is its folder."""

    make: str
    modules: str
    """What its Python has to be able to import."""
    source: str = ""
    """The file of its repository that is run."""


VENV, CUDA = "python3.12 -m venv {} && {}/bin/pip install", "'jax[cuda12]'"
PEERS = {
    "sorrel": Peer(f"{VENV} sorrel==1.6.0", "sorrel torch"),
    "gfnx": Peer(
        f"{VENV} {CUDA} equinox optax chex jaxtyping networkx omegaconf matplotlib tqdm flax && "
        "{}/bin/pip install --no-deps gfnx==0.0.1 flashbax jax-tqdm",
        "gfnx equinox",
    ),
    "torchgfn": Peer(f"{VENV} torchgfn==2.4.1", "gfn"),
    "purejaxrl": Peer(
        f"{VENV} {CUDA} flax optax flashbax gymnax && git clone https://github.com/luchris429/purejaxrl {{}}/src",
        "flashbax gymnax flax optax",
        "purejaxrl/dqn.py",
    ),
    "purejaxql": Peer(
        f"{VENV} {CUDA} flax optax gymnax && git clone https://github.com/mttga/purejaxql {{}}/src",
        "gymnax flax optax",
        "purejaxql/pqn_minatar.py",
    ),
    "cleanrl": Peer(
        f"{VENV} {CUDA} flax optax tyro torch gymnasium && git clone https://github.com/vwxyzjn/cleanrl {{}}/src",
        "gymnasium flax optax tyro torch",
        "cleanrl/dqn_jax.py",
    ),
}


@dataclass(frozen=True)
class Sizes:
    """How long rows are, by what they are: (seeds, length), or a length for one seed."""

    dqn: int = 500_000
    dqn_slow: int = 40_000  # CleanRL, PyTorch
    dqn_seeds: int = 128
    pqn: int = 9_998_336  # whole rollouts of 4096 steps
    pqn_seeds: int = 1
    hunt: int = 800
    hunt_slow: int = 60
    hunt_seeds: tuple[int, int] = (512, 80)
    grid: int = 2000
    grid_slow: int = 300
    grid_seeds: int = 64
    batch: int = 256


SIZES = {
    "gpu": Sizes(dqn_slow=20_000),
    "cpu": Sizes(dqn_seeds=4, pqn=81_920, hunt=40, hunt_slow=40, hunt_seeds=(4, 20), grid_seeds=4, batch=64),
    "tiny": Sizes(11_000, 11_000, 2, 8192, 1, 12, 12, (2, 12), 100, 50, 2, 16),
}


@dataclass(frozen=True)
class Row:
    """One row of the table: `call` trains, once, and returns what its process printed."""

    case: str
    name: str
    call: Callable[[], dict]
    length: int
    seeds: int = 1
    peer: str = ""


class Rows:
    """Makes the rows of all cases for a device."""

    def __init__(self, device: str, sizes: Sizes, folder: Path, limit: float) -> None:
        self.device, self.sizes, self.folder, self.limit = device, sizes, folder, limit

    def python(self, peer: str) -> str:
        """The Python of a peer."""
        own = self.folder / peer / "bin" / "python"
        return str(own if own.exists() else self.folder / "py")

    def source(self, peer: str) -> Path:
        """The file of a peer's repository that is run."""
        return self.folder / peer / "src" / PEERS[peer].source

    def missing(self, peer: str) -> str:
        """What a peer lacks, or nothing."""
        if not Path(self.python(peer)).exists():
            return "it has no Python"
        if PEERS[peer].source and not self.source(peer).exists():
            return f"there is no {PEERS[peer].source}"
        done = subprocess.run(
            [self.python(peer), "-c", LACKS, *PEERS[peer].modules.split()], capture_output=True, text=True
        )
        return (done.stderr.strip().splitlines() or ["its Python fails"])[-1] if done.returncode else ""

    def of_peer(self, case: str, peer: str, words: list[str], length: int, seeds: int = 1, where: str = "") -> Row:
        """A row of a peer; `where` is the device that it is told to use, if there is a choice."""
        variables = {"PYTHONPATH": ""} | ({"JAX_PLATFORMS": "cpu"} if "cpu" in (where, self.device) else {})

        def call() -> dict:
            if why := self.missing(peer):
                return {"error": f"missing ({why}): {made(peer, self.folder)}", "not_run": True}
            found = peer_row(peer, [self.python(peer), *words], self.limit, **variables)
            return {"error": f"{found['error']}; made by {made(peer, self.folder)}"} if "error" in found else found

        return Row(case, f"{peer} on {where}" if where else peer, call, length, seeds, peer)

    def ours(self, case: str, rung: str, length: int, seeds: int = 1, name: str = "", **plan: object) -> Row:
        """A row of ours, called by its rung if it has no other name."""
        words = json.dumps({"rung": rung, "seeds": seeds, "device": self.device, **plan})

        def call() -> dict:
            return peer_row(rung, [sys.executable, str(HERE / "our_side.py"), words], self.limit)

        return Row(case, name or rung, call, length, seeds)

    def cartpole(self) -> Iterator[Row]:
        """DQN at the settings of PureJaxRL and CleanRL."""
        case, s = "cartpole", self.sizes

        def ours(rung: str, steps: int, seeds: int = 1) -> Row:
            changes = {"steps": steps, "evaluate_episodes": 0}
            plan = {"workload": "cartpole", "preset": "dqn", "protocol": "cleanrl", "changes": changes}
            return self.ours(case, rung, steps, seeds, **plan)

        for seeds in (1, s.dqn_seeds):
            words = [SCRIPT["purejax"], "dqn", str(self.source("purejaxrl")), "--seeds", str(seeds)]
            words += ["--steps", str(s.dqn), "--repeats", "1"]
            yield self.of_peer(case, "purejaxrl", words, s.dqn, seeds)
            yield ours("fused", s.dqn, seeds)
        yield ours("compiled", s.dqn_slow)
        for where in ("gpu", "cpu") if self.device == "gpu" else ("cpu",):
            words = [SCRIPT["cleanrl"], str(self.source("cleanrl").parents[1]), "--steps", str(s.dqn_slow)]
            yield self.of_peer(case, "cleanrl", words, s.dqn_slow, where=where)

    def minatar(self) -> Iterator[Row]:
        """PQN at PureJaxQL's settings; it has no PyTorch rung."""
        case, s = "minatar", self.sizes
        for seeds in sorted({1, s.pqn_seeds}):
            words = [SCRIPT["purejax"], "pqn", str(self.source("purejaxql")), "--seeds", str(seeds)]
            words += ["--steps", str(s.pqn), "--repeats", "1"]
            yield self.of_peer(case, "purejaxql", words, s.pqn, seeds)
            changes = {"steps": s.pqn, "evaluate_episodes": 0}
            plan = {"workload": "minatar/breakout", "preset": "pqn", "protocol": "purejaxql", "changes": changes}
            yield self.ours(case, "fused", s.pqn, seeds, **plan)

    def treasurehunt(self) -> Iterator[Row]:
        """Sorrel's example at our settings."""
        case, s = "treasurehunt", self.sizes
        rows = [("fused", 1, s.hunt), ("fused", *s.hunt_seeds), ("compiled", 1, s.hunt_slow)]
        for rung, seeds, epochs in rows:
            changes = treasurehunt.settings(s.batch, epochs)
            yield self.ours(case, rung, epochs, seeds, workload="treasurehunt", changes=changes)
        if self.device == "gpu":
            seeds, epochs = s.hunt_seeds
            changes = treasurehunt.settings(s.batch, epochs, precision="bfloat16")
            name = "fused in bfloat16"
            yield self.ours(case, "fused", epochs, seeds, name, workload="treasurehunt", changes=changes)
        for where in ("cuda", "cpu") if self.device == "gpu" else ("cpu",):
            words = [SCRIPT["sorrel"], "--device", where, "--batch", str(s.batch), "--epochs", "8"]
            yield self.of_peer(case, "sorrel", words, s.hunt_slow, where=where)

    def hypergrid(self) -> Iterator[Row]:
        """Trajectory balance at gfnx's and torchgfn's published settings, 20⁴ cells."""
        case, s = "hypergrid", self.sizes
        rows = [("fused", 1, s.grid), ("fused", s.grid_seeds, s.grid), ("compiled", 1, s.grid_slow)]
        for rung, seeds, iterations in rows:
            changes = hypergrid.settings(iterations) | {"evaluate_every": 10**6}
            plan = {"workload": "hypergrid", "preset": "published", "changes": changes}
            yield self.ours(case, rung, iterations, seeds, **plan)
        for peer, iterations in {"gfnx": s.grid, "torchgfn": s.grid_slow}.items():
            chunk = str(min(100, iterations // 2))
            words = ["--device", self.device, "--iterations", str(iterations), "--chunk", chunk]
            if (peer, self.device) == ("torchgfn", "gpu"):
                words += ["--threads", "1"]  # it waits for the GPU, whatever their number
            yield self.of_peer(case, peer, [SCRIPT[peer], *words], iterations)


TIMED = ("treasurehunt", "hypergrid")  # a few of their epochs or iterations, after learning has started


def made(peer: str, folder: Path) -> str:
    """The line that makes a peer's environment."""
    return PEERS[peer].make.format(*[folder / peer] * 3)


def rate_of(row: Row, found: dict) -> float:
    """Steps, epochs or iterations of all seeds per second: of the whole run, or the median where only that is timed."""
    if "iterations_per_second" in found:
        return found["iterations_per_second"]
    if row.case in TIMED:
        return 1 / (found.get("seconds_per_epoch") or found["seconds_per_tick"])
    return row.seeds * row.length / found["train_seconds"]


def about(row: Row) -> dict:
    """What is known of a row before it is measured."""
    return {"case": row.case, "name": row.name, "peer": row.peer, "seeds": row.seeds, "length": row.length}


def measured(row: Row) -> dict:
    """Train a row, and bring what it printed to the columns of the table."""
    found = row.call()
    facts = about(row)
    if "error" in found:
        return facts | {key: found[key] for key in ("error", "not_run") if key in found}
    rate = rate_of(row, found)
    whole = found.get("whole_seconds") or found["process_seconds"]
    tries_modes = "start_seconds" in found and "whole_seconds" not in found
    if tries_modes:
        whole = found["start_seconds"] + row.length / rate
    score = found.get("log_z", found.get("logZ")) if row.case in TIMED else found.get("return")
    columns = {"rate": rate, "whole_seconds": whole, "whole_estimated": tries_modes, "score": score}
    return facts | columns | {"compile_seconds": found.get("compile_seconds"), "printed": found}


def main() -> None:
    text = __doc__.format(rules=RULES)
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--only", default="", help="names of rows: fused,purejaxrl …")
    parser.add_argument("--environments", type=Path, default=ENVIRONMENTS, help="where the peers' environments are")
    parser.add_argument("--tiny", action="store_true", help="short rows, to see that it runs")
    parser.add_argument("--seconds", type=float, default=3600, help="no row begins after this time")
    parser.add_argument("--limit", type=float, default=900, help="seconds after which a row is stopped")
    parser.add_argument("--make", action="store_true", help="print how the environments are made")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print a file of results as Markdown")
    parser.add_argument("--out", type=Path, help="where the JSON goes (benchmarks/results/peers-DEVICE.json)")
    options = parser.parse_args()
    if unknown := set(options.cases.split(",")) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}: choose from {', '.join(CASES)}")
    folder, console = options.environments.absolute(), Console(width=140)
    if options.table:
        rows = json.loads(options.table.read_text())["rows"]
        print(markdown(rows), *(f"From {run}\n" for run in runs(rows)), sep="", end="")
        return
    if options.make:
        for peer in PEERS:
            console.print(made(peer, Path("build/environments")), highlight=False, markup=False, soft_wrap=True)
        return
    # Several processes share the device, and memory is to be what a row uses.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    paths = [str(HERE.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    out = options.out or HERE / ("../build/peers-tiny.json" if options.tiny else f"results/peers-{options.device}.json")
    before = json.loads(out.read_text()) if out.exists() else {}
    rows: list[dict] = []
    facts = measured_on(devices.find(options.device)) | {"rules": RULES}
    maker = Rows(options.device, SIZES["tiny" if options.tiny else options.device], folder, options.limit)
    begun, names = time.perf_counter(), set(filter(None, options.only.split(",")))
    for case in options.cases.split(","):
        for row in getattr(maker, case)():
            if names and not names & {row.name, row.peer}:
                continue
            late = time.perf_counter() - begun > options.seconds
            left_out = {"error": "no time was left", "not_run": True, **about(row)}
            rows.append(left_out if late else measured(row))
            said = rows[-1].get("error") or f"{rows[-1]['rate']:,.1f} {CASES[case][1]}/s"
            took = f"{time.perf_counter() - begun:5.0f} s"
            console.print(f"{took} {case} {row.name}, {row.seeds} seeds: {said}", highlight=False, markup=False)
            out.parent.mkdir(exist_ok=True)
            write_json(out, merged(before, rows, facts))
    show(merged(before, rows, facts)["rows"], console)


if __name__ == "__main__":
    main()
