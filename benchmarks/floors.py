"""The table of docs/benchmarks/floors.md: what is to be reached, what was measured, and the limit where it was missed.

    python benchmarks/floors.py

Run it again when a file of `results` has changed; a test compares the page with the files. What a file lacks is shown
as not measured.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peer_tables import markdown, runs, with_ratios

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "benchmarks" / "floors.md"
HEAD = ("", "floor", "aim", "measured", "")
Found = Callable[[], float | None]


@dataclass(frozen=True)
class Goal:
    """One number to reach; `limit` says what keeps it from the floor or the aim, for as long as it does."""

    what: str
    floor: float | None
    aim: float | None
    found: Found
    file: str
    limit: str = ""
    form: str = "{:.2f}×"
    less: bool = False
    """Whether it is to be below."""

    def misses(self, goal: float | None, found: float) -> bool:
        """Whether a measured number is on the wrong side."""
        return goal is not None and (found > goal if self.less else found < goal)

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        sign, found = "≤" if self.less else "≥", self.found()
        goals = [f"{sign} {self.form.format(goal)}" if goal is not None else "" for goal in (self.floor, self.aim)]
        if found is None:
            return self.what, *goals, "not measured", ""
        missed = "missed" if self.misses(self.floor, found) else "aim missed" if self.misses(self.aim, found) else ""
        return self.what, *goals, f"**{self.form.format(found)}**", missed


def content(file: str) -> dict:
    """A file of results, empty if there is none."""
    path = RESULTS / f"{file}.json"
    return json.loads(path.read_text()) if path.exists() else {"rows": []}


def peer(machine: str, case: str, column: str, seeds: int = 1, name: str = "fused") -> Found:
    """A column of one of our rows beside the peers."""

    def found() -> float | None:
        rows = with_ratios(content(f"peers-{machine}")["rows"])
        mine = [r for r in rows if (r["case"], r["name"], r["seeds"]) == (case, name, seeds) and column in r]
        return mine[0][column] if mine else None

    return found


def of_compiled(machine: str, case: str) -> Found:
    """`fused` against `compiled`, of the comparison with peers."""

    def found() -> float | None:
        ours, theirs = (peer(machine, case, "rate", name=name)() for name in ("fused", "compiled"))
        return ours / theirs if ours and theirs else None

    return found


def of_best_torch(machine: str, case: str) -> Found:
    """`fused` against the faster of `torch` and `compiled`, in one run."""

    def found() -> float | None:
        ms = {row["rung"]: row["ms"] for row in content(f"strongest-torch-{machine}")["rows"] if row["case"] == case}
        return min(ms["torch"], ms["compiled"]) / ms["fused"] if ms else None

    return found


def per_world(name: str) -> Found:
    """Milliseconds per world and epoch of 512 treasure hunts."""

    def found() -> float | None:
        rate = peer("gpu", "treasurehunt", "rate", 512, name)()
        return 1000 / rate if rate else None

    return found


def emulators() -> float | None:
    """Agent steps per second of `parallel`, as a share of the emulators' own rate."""
    rates = {row["name"]: row["steps_per_second"] for row in content("atari-gpu")["rows"]}
    return 100 * rates["parallel/160/bf16"] / rates["emulator/160"] if rates else None


def recording(seeds: int) -> Found:
    """Processor time of recording, in percent of the program's."""
    return lambda: next((r["recording_percent"] for r in content("recording-cpu")["rows"] if r["seeds"] == seeds), None)


HUNT_GPU = (
    "Latency: with one experiment the GPU is idle most of the time (512 of them at once take a fifth of the time per "
    "world), and an epoch is fifty turns of which each needs the one before, and five updates."
)
POPULATION = (
    "Memory. The learning step passes several times over tensors of 2,560 × 3,072 × 256 numbers, 8 GB each in float32, "
    "element by element; its matrix products are the smaller part. bfloat16 halves what is read, not the number of "
    "passes. Agents in groups (`lax.map`), whose tensors are smaller, take longer: 188 ms per epoch of all worlds in "
    "groups of 16 and 165 in groups of 32, instead of 120."
)
EMULATORS = (
    "The device needs 7 ms for the updates of a tick and the emulators need 10 ms or more, so the updates are hidden; "
    "what remains is one call, and one copy of observations and actions, per step."
)
GPU = (
    Goal(
        "CartPole, DQN, against PureJaxRL, in the program",
        1.3,
        2.0,
        peer("gpu", "cartpole", "times_best_peer"),
        "peers-gpu",
    ),
    Goal("CartPole, DQN, whole command", 1.3, 2.0, peer("gpu", "cartpole", "times_best_peer_whole"), "peers-gpu"),
    Goal(
        "CartPole, DQN, 128 seeds, in the program",
        1.3,
        2.0,
        peer("gpu", "cartpole", "times_best_peer", 128),
        "peers-gpu",
    ),
    Goal(
        "CartPole, DQN, 128 seeds, whole command",
        1.3,
        2.0,
        peer("gpu", "cartpole", "times_best_peer_whole", 128),
        "peers-gpu",
    ),
    Goal(
        "MinAtar Breakout, PQN, against PureJaxQL, in the program",
        1.4,
        2.0,
        peer("gpu", "minatar", "times_best_peer"),
        "peers-gpu",
    ),
    Goal("PQN, whole command", 1.0, 1.4, peer("gpu", "minatar", "times_best_peer_whole"), "peers-gpu"),
    Goal(
        "PQN, compiling",
        11.0,
        None,
        peer("gpu", "minatar", "compile_seconds"),
        "peers-gpu",
        form="{:.1f} s",
        less=True,
    ),
    Goal(
        "treasure hunt, `fused` against `compiled` PyTorch",
        6.0,
        9.0,
        of_compiled("gpu", "treasurehunt"),
        "peers-gpu",
        HUNT_GPU,
    ),
    Goal(
        "treasure hunt, 512 seeds, against sorrel on the same GPU",
        600.0,
        1200.0,
        peer("gpu", "treasurehunt", "times_best_peer", 512),
        "peers-gpu",
        POPULATION,
        "{:,.0f}×",
    ),
    Goal(
        "treasure hunt, 512 seeds in bfloat16, against sorrel",
        600.0,
        1200.0,
        peer("gpu", "treasurehunt", "times_best_peer", 512, "fused in bfloat16"),
        "peers-gpu",
        POPULATION,
        "{:,.0f}×",
    ),
    Goal(
        "treasure hunt, 512 seeds in bfloat16, per world and epoch",
        None,
        0.12,
        per_world("fused in bfloat16"),
        "peers-gpu",
        POPULATION,
        "{:.3f} ms",
        less=True,
    ),
    Goal("hypergrid 20⁴ against gfnx", None, 8.0, peer("gpu", "hypergrid", "times_best_peer"), "peers-gpu"),
    Goal(
        "hypergrid 20⁴, 64 seeds, against gfnx",
        None,
        150.0,
        peer("gpu", "hypergrid", "times_best_peer", 64),
        "peers-gpu",
        "",
        "{:.0f}×",
    ),
    Goal(
        "Atari Breakout, `parallel`, of the emulators' own rate",
        95.0,
        100.0,
        emulators,
        "atari-gpu",
        EMULATORS,
        "{:.0f} %",
    ),
)
HUNT_CPU = "Most of the time goes into matrix products, which PyTorch does as fast; [below](#what-limits-a-cpu)."
SIZES = (
    "Its update is compiled in several sizes, so that short trajectories do not pay for long ones; "
    "[below](#what-limits-a-cpu)."
)
CPU = (
    Goal(
        "treasure hunt, batch 256, `fused` against the faster of `torch` and `compiled`",
        1.2,
        None,
        of_best_torch("cpu", "treasurehunt-256"),
        "strongest-torch-cpu",
        HUNT_CPU,
    ),
    Goal(
        "treasure hunt, batch 64, `fused` against the faster of the two",
        1.8,
        None,
        of_best_torch("cpu", "treasurehunt-64"),
        "strongest-torch-cpu",
        HUNT_CPU,
    ),
    Goal(
        "treasure hunt, compiling `fused`",
        None,
        4.0,
        peer("cpu", "treasurehunt", "compile_seconds"),
        "peers-cpu",
        "",
        "{:.1f} s",
        less=True,
    ),
    Goal(
        "hypergrid 20⁴, compiling `fused`",
        None,
        4.0,
        peer("cpu", "hypergrid", "compile_seconds"),
        "peers-cpu",
        SIZES,
        "{:.1f} s",
        less=True,
    ),
    Goal("CartPole, DQN, against PureJaxRL", None, 1.0, peer("cpu", "cartpole", "times_best_peer"), "peers-cpu"),
    Goal(
        "CartPole, DQN, 4 seeds, against PureJaxRL",
        None,
        1.0,
        peer("cpu", "cartpole", "times_best_peer", 4),
        "peers-cpu",
    ),
    Goal("MinAtar Breakout, PQN, against PureJaxQL", None, 2.0, peer("cpu", "minatar", "times_best_peer"), "peers-cpu"),
    Goal("recording metrics, CartPole, one seed", 2.0, None, recording(1), "recording-cpu", form="{:.1f} %", less=True),
    Goal(
        "recording metrics, CartPole, eight seeds", 2.0, None, recording(8), "recording-cpu", form="{:.1f} %", less=True
    ),
)
FILES = ("peers-gpu", "atari-gpu", "strongest-torch-cpu", "peers-cpu", "recording-cpu", "limits-cpu")


def table(goals: tuple[Goal, ...]) -> str:
    """A table as Markdown, and below it what keeps those that were missed from more."""
    text = f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}\n"
    text += "".join(f"| {' | '.join(goal.cells())} |\n" for goal in goals)
    limits: dict[str, list[str]] = {}
    for goal in goals:
        if goal.cells()[-1]:
            limits.setdefault(goal.limit or "No profile shows why yet.", []).append(goal.cells()[0])
    return text + "".join(f"\n- {'; '.join(names)}: {limit}" for limit, names in limits.items()) + "\n" * bool(limits)


def sources() -> str:
    """Which run each file is from."""
    lines = ""
    for file in FILES:
        facts = content(file)
        if not facts["rows"]:
            lines += f"- `{file}.json`: not measured\n"
            continue
        several = runs(facts["rows"]) if file.startswith("peers") else []
        latest = f"`{facts['command']}` ({facts['device']}, commit {str(facts['git_commit'])[:7]})"
        lines += f"- [{file}.json](../../benchmarks/results/{file}.json): {'; '.join(several) or latest}\n"
    return lines


def peers() -> str:
    """All rows beside the peers on the GPU."""
    rows = content("peers-gpu")["rows"]
    return markdown(rows) if rows else "Not measured yet.\n"


def limits() -> str:
    """Where the time of an epoch goes on a CPU, and what the sizes of an update cost and save."""
    rows = content("limits-cpu")["rows"]
    shares = [row for row in rows if row["what"] == "parts"]
    sizes = [row for row in rows if row["what"] == "sizes"]
    if not shares or not sizes:
        return "Not measured yet.\n"
    heads = " | ".join(f"batch {row['batch']}" for row in shares)
    text = f"| part of an epoch | {heads} |\n|{'---|' * (1 + len(shares))}\n"
    for part in shares[0]["shares"]:
        percents = " | ".join(f"{100 * row['shares'].get(part, 0):.0f} %" for row in shares)
        text += f"| {part} | {percents} |\n"
    text += (
        "\n| sizes of the update | start, s of processor time | an iteration, ms of processor time |\n|---|---|---|\n"
    )
    for row in sizes:
        text += f"| {row['sizes']} | {row['starting_cpu_seconds']:.1f} | {row['cpu_ms_per_iteration']:.2f} |\n"
    return text


PARTS: dict[str, Callable[[], str]] = {
    "gpu": lambda: table(GPU),
    "cpu": lambda: table(CPU),
    "limits": limits,
    "peers": peers,
    "sources": sources,
}


def filled(page: str) -> str:
    """The page with its regions filled."""
    return re.sub(
        r"(<!-- floors: (\w+) -->\n).*?(<!-- end of floors -->)",
        lambda found: f"{found[1]}{PARTS[found[2]]()}{found[3]}",
        page,
        flags=re.DOTALL,
    )


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
