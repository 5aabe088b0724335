"""What `peers.py` measured, as tables: rules, ratios to the best peer, and rows of several runs in one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

RULES = """Fairness:
- Settings are the peer's own, and ours are set to them; the peer's code is unchanged, but for names that newer versions
  of JAX, gymnax and Gymnasium took away.
- Logging, evaluation and pictures are off on both sides. What a peer reports while it trains stays on the device.
- The best of a peer's modes counts: on CPU and GPU, every number of threads, each way to get log-probabilities.
- Every row is its own process, one after another; no compiled programs are cached. `whole` is the process from its
  start until the agents are trained. With a ≈ it is start-up plus length over rate, for scripts that try several modes.
- Rows are compared with the best peer that trains as many seeds, or with the best peer if none does. Whole times are
  compared at the length of the longest row of a case: what is shorter counts as its start-up and compilation, once,
  plus length × seeds over rate, and the ratio has a ≈. That favours short rows: more of them is before learning starts.
- Peers in PyTorch are LeanRL's kind at best, so our rung `compiled` (torch.compile, CUDA graphs) stands for that.
- Score: mean return of the last tenth of training; on the hypergrid the learned log Z. Treasure hunt is timed with a
  fixed ε; what it learns is compared by `sorrel_learning.py`.
- Memory: the peak on the GPU, or of the process on a CPU."""

CASES = {
    "cartpole": ("CartPole, DQN: 10 envs, batch 128, an update every 10 steps", "steps"),
    "minatar": ("MinAtar Breakout, PQN: 128 envs, rollouts of 32", "steps"),
    "hypergrid": ("hypergrid 20⁴: trajectory balance, batch 16", "iterations"),
    "treasurehunt": (
        "treasure hunt: five agents that observe together (sorrel's: in turn), batch 64 on a CPU",
        "epochs",
    ),
}
HEAD = ("", "seeds", "length", "per second", "× peer", "compile, s", "whole, s", "× peer, whole", "score", "MB")
ABOUT_A_RUN = ("git_commit", "command", "device")


def whole_at(row: dict[str, Any], length: int, seeds: int) -> float:
    """Seconds of a row's whole process if it trained so many seeds for so long: measured if it did, else scaled."""
    if (row["length"], row["seeds"]) == (length, seeds):
        return row["whole_seconds"]
    training = row["printed"].get("train_seconds") or row["length"] * row["seeds"] / row["rate"]
    return row["whole_seconds"] - training + length * seeds / row["rate"]


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add how many times faster ours are than the best peer with as many seeds, or than the best of all."""
    for row in rows:
        alike = [r for r in rows if r["case"] == row["case"] and "rate" in r]
        peers = [r for r in alike if r["peer"]]
        peers = [r for r in peers if r["seeds"] == row["seeds"]] or peers
        if not peers or row["peer"] or "rate" not in row:
            continue
        row["times_best_peer"] = row["rate"] / max(r["rate"] for r in peers)
        length, seeds = max(r["length"] for r in alike), row["seeds"]
        best = min(peers, key=lambda r: whole_at(r, length, seeds))
        row["times_best_peer_whole"] = whole_at(best, length, seeds) / whole_at(row, length, seeds)
        measured = all((r["length"], r["seeds"]) == (length, seeds) and not r["whole_estimated"] for r in (row, best))
        row["times_best_peer_whole_estimated"] = not measured
    return rows


def merged(before: dict[str, Any], rows: list[dict[str, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    """The content of a file of results with newly measured rows in the place of those of the same name and seeds.

    Every row keeps the commit, command and device of its own run. A row for which no time was left, or whose peer
    is missing here, does not replace a measured one.
    """
    old = {key: before.get(key) for key in ABOUT_A_RUN}
    kept = {_key(row): old | row for row in before.get("rows", [])}
    for row in rows:
        if row.get("not_run") and "rate" in kept.get(_key(row), {}):
            continue
        kept[_key(row)] = row | {key: facts[key] for key in ABOUT_A_RUN}
    order = list(CASES)
    return {"rows": with_ratios(sorted(kept.values(), key=lambda row: order.index(row["case"]))), **facts}


def _key(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["case"], row["name"], row["seeds"]


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """The rules and the table, on the screen."""
    from rich.table import Table

    console.print(RULES, highlight=False, markup=False)
    for case, (title, unit) in CASES.items():
        mine = [row for row in rows if row["case"] == case]
        if not mine:
            continue
        table = Table(title=title, title_justify="left")
        for head in ("", "seeds", unit, f"{unit}/s", *HEAD[4:]):
            table.add_column(head, justify="right" if head else "left")
        for row in mine:
            if "error" not in row:
                table.add_row(*cells(row))
        console.print(table)
        for row in mine:
            if "error" in row:
                console.print(f"{row['name']}: {row['error']}", highlight=False, markup=False, soft_wrap=True)


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table for the docs."""
    text = f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}\n"
    for case, (title, unit) in CASES.items():
        mine = [row for row in with_ratios(rows) if row["case"] == case and "error" not in row]
        if not mine:
            continue
        text += f"| **{title}** |{' |' * (len(HEAD) - 1)}\n"
        for row in mine:
            name, seeds, length, *rest = cells(row)
            shown = name if row["peer"] else f"`{name}`"
            text += f"| {' | '.join([shown, seeds, f'{length} {unit}', *rest])} |\n"
    return text


def runs(rows: list[dict[str, Any]]) -> list[str]:
    """The runs that the rows are from, if there are several."""
    found = dict.fromkeys(tuple(row.get(key) for key in ABOUT_A_RUN) for row in rows if "rate" in row)
    return [f"{command} ({device}, commit {str(commit)[:7]})" for commit, command, device in found if len(found) > 1]


def cells(row: dict[str, Any]) -> list[str]:
    """A row as text."""

    def number(value: float | None, form: str) -> str:
        return "" if value is None else form.format(value)

    return [
        row["name"],
        str(row["seeds"]),
        f"{row['length']:,}",
        f"{row['rate']:,.0f}" if row["rate"] > 50 else f"{row['rate']:.1f}",
        number(row.get("times_best_peer"), "{:.2f}"),
        number(row["compile_seconds"], "{:.1f}"),
        "≈ " * row["whole_estimated"] + f"{row['whole_seconds']:.1f}",
        "≈ " * row.get("times_best_peer_whole_estimated", False) + number(row.get("times_best_peer_whole"), "{:.2f}"),
        number(row["score"], "{:.1f}"),
        f"{row['printed']['peak_memory_mb']:,.0f}",
    ]
