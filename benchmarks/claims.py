"""The table of docs/benchmarks/claims.md, from the measurements in `results`: factors commonly claimed, and ours.

    python benchmarks/claims.py

Every number is a ratio of two rows of one file, measured in one run on one machine.
"""

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
EPOCHS, STEPS = 1000, 2_000_000  # of the default runs of treasure hunt and MinAtar
HEAD = "| what is moved | claimed | workload | CPU | H200 |\n|---|---|---|---|---|\n"


def rows(file: str) -> list[dict]:
    """The rows of a file of results."""
    return json.loads((RESULTS / f"{file}.json").read_text())["rows"]


def hunt(machine: str, name: str, batch: int) -> dict:
    """A row of the treasure hunt at ε = 0.63 with agents that observe together."""
    found = rows(f"treasurehunt-{machine}")
    alike = [r for r in found if (r["name"], r["batch"], r["epsilon"], r["observe"]) == (name, batch, 0.63, "together")]
    return alike[0]


def named(file: str, name: str) -> dict:
    """The first row of a name."""
    return next(row for row in rows(file) if row["name"] == name)


def times(number: float) -> str:
    """A factor as text: two digits below ten."""
    return f"{number:.2f}×" if number < 10 else f"{number:,.0f}×"


def hunts(rung: str, cpu_seeds: str = "", gpu_seeds: str = "") -> tuple[str, str]:
    """Treasure hunt against `torch`: batches 256 and 64 on a CPU, 256 on a GPU."""
    key = "seconds_per_epoch"
    batches = (64,) if cpu_seeds else (256, 64)
    cpu = [hunt("cpu", "torch on cpu", b)[key] / hunt("cpu", f"{rung} on cpu{cpu_seeds}", b)[key] for b in batches]
    gpu = hunt("gpu", "torch on gpu", 256)[key] / hunt("gpu", f"{rung} on gpu{gpu_seeds}", 256)[key]
    return " / ".join(map(times, cpu)), times(gpu)


def grids(rung: str, key: str = "seconds_per_iteration", cpu: str = "", gpu: str = "") -> tuple[str, str]:
    """The hypergrid against `torch`."""
    found = []
    for machine, seeds in (("cpu", cpu), ("gpu", gpu)):
        file = f"hypergrid-{machine}"
        found.append(times(named(file, f"torch on {machine}")[key] / named(file, f"{rung} on {machine}{seeds}")[key]))
    return found[0], found[1]


def minatar(machine: str, rung: str) -> str:
    """MinAtar Breakout with DQN against `torch`; a dash where it was not measured."""
    rates = {row["name"]: row["steps_per_second"] for row in rows(f"minatar-{machine}")}
    return times(rates[rung] / rates["torch"]) if rung in rates else "–"


def dropin(machine: str, key: str) -> str:
    """Our models in sorrel's own loop, five agents in its treasure hunt, against its PyTorch."""
    (row,) = [
        r for r in rows(f"sorrel-dropin-{machine}") if r["world"] == "treasurehunt, 5 agents" and r["model"] == "JaxIQN"
    ]
    return times(row["times_faster"][key])


def spent(machine: str, case: str) -> dict[str, float]:
    """Milliseconds per tick of each rung, in the run that compared PyTorch at its best."""
    return {row["rung"]: row["ms"] for row in rows(f"strongest-torch-{machine}") if row["case"] == case}


def best_torch(machine: str, case: str) -> str:
    """How many times faster `fused` is than the faster of PyTorch's two rungs."""
    ms = spent(machine, case)
    return times(min(ms["torch"], ms["compiled"]) / ms["fused"])


def compiled_on_cpu(case: str) -> str:
    """`compiled` against `torch`, by processor time."""
    (row,) = [row for row in rows("strongest-torch-alternate-cpu") if row["case"] == case]
    return times(row["torch_over_compiled"])


def whole(machine: str) -> tuple[str, str]:
    """A run of default length with the time to compile, calculated from rates: treasure hunt, and MinAtar."""
    torch, ours = (hunt(machine, f"{rung} on {machine}", 256) for rung in ("torch", "fused"))
    epochs = EPOCHS * torch["seconds_per_epoch"] / (EPOCHS * ours["seconds_per_epoch"] + ours["compile_seconds"])
    torch, ours = (named(f"minatar-{machine}", rung) for rung in ("torch", "fused"))
    steps = STEPS / torch["steps_per_second"] / (STEPS / ours["steps_per_second"] + ours["compile_seconds"])
    return times(epochs), times(steps)


def strongest() -> list[tuple[str, ...]]:
    """Lines with PyTorch at its best: `compiled` against `torch`, and `fused` against the better of the two."""
    cases = {"treasure hunt": "treasurehunt-256", "hypergrid": "hypergrid-20^4", "CartPole, DQN": "cartpole"}
    compiled, fused = [], []
    for name, case in cases.items():
        gpu = spent("gpu", case)
        compiled.append(("", "", name, compiled_on_cpu(case), times(gpu["torch"] / gpu["compiled"])))
        cpu = best_torch("cpu", case)
        if case == "treasurehunt-256":
            cpu += f" / {best_torch('cpu', 'treasurehunt-64')}"
        fused.append(("", "", name, cpu, best_torch("gpu", case)))
    compiled[0] = ("nothing, but PyTorch is compiled (`compiled`)", *compiled[0][1:])
    fused[0] = ("`fused` against the best PyTorch", *fused[0][1:])
    return [*compiled, *fused]


def table() -> str:
    """The table as Markdown."""
    step, iteration = grids("hybrid", "update_seconds"), grids("hybrid")
    (hunt_cpu, minatar_cpu), (hunt_gpu, minatar_gpu) = whole("cpu"), whole("gpu")
    lines = [
        ("the gradient step (`hybrid`)", "2–5×", "hypergrid, the step", *step),
        ("", "", "hypergrid, an iteration", *iteration),
        ("", "", "MinAtar, DQN", minatar("cpu", "hybrid"), minatar("gpu", "hybrid")),
        (
            "gradient step and acting, in sorrel's loop",
            "",
            "treasure hunt, learning",
            dropin("cpu", "cpu_ms_learning"),
            dropin("gpu", "ms_learning"),
        ),
        ("", "", "treasure hunt, an epoch", dropin("cpu", "cpu_ms_per_epoch"), dropin("gpu", "ms_per_epoch")),
        ("acting and learning in JAX, one call at a time (`sequential`)", "", "treasure hunt", *hunts("sequential")),
        ("", "", "hypergrid", *grids("sequential")),
        ("", "", "MinAtar, DQN", minatar("cpu", "sequential"), minatar("gpu", "sequential")),
        ("the world too, one call per tick (`parallel`)", "5–10×", "treasure hunt", *hunts("parallel")),
        ("", "", "hypergrid", *grids("parallel")),
        ("", "", "MinAtar, DQN", minatar("cpu", "parallel"), minatar("gpu", "parallel")),
        ("training as one program (`fused`)", "10–100×", "treasure hunt", *hunts("fused")),
        ("", "", "hypergrid", *grids("fused")),
        ("", "", "MinAtar, DQN", minatar("cpu", "fused"), minatar("gpu", "fused")),
        ("a whole run of it, compilation included", "4–12×", "treasure hunt, 1,000 epochs", hunt_cpu, hunt_gpu),
        ("", "", "MinAtar, 2,000,000 steps", minatar_cpu, minatar_gpu),
        (
            "a population of seeds (`fused`), per seed",
            "",
            "treasure hunt, 4 seeds / 512 on the H200",
            *hunts("fused", ", 4 seeds", ", 512 seeds"),
        ),
        ("", "", "hypergrid, 4 / 64", *grids("fused", cpu=", 4 seeds", gpu=", 64 seeds")),
        ("", "", "MinAtar, 16 / 128", minatar("cpu", "fused/16"), minatar("gpu", "fused/128")),
        *strongest(),
    ]
    return HEAD + "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    print(table(), end="")
