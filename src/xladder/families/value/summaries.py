"""Texts and columns that describe a run of a value learner: metrics, summaries, evaluations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xladder.core.statistics import format_mean, signed, tenths
from xladder.families.value.advice import TO_TRY
from xladder.families.value.config import ValueConfig

SHOWN = {"return": "return {:.1f}", "eval_return": "evaluated {:.1f}", "loss": "loss {:.4f}", "epsilon": "ε {:.2f}"}
MOST_AGENTS = 6  # whose returns are printed one by one
# Columns that only `actors` reports: how many parameter versions the actors lag behind, the age of sampled rows in
# ticks, samples per environment step, chunks queued for the replay memories, and batches queued for the learner.
OF_ACTORS = ("lag", "staleness", "ratio", "queue_chunks", "queue_batches")


def measured(config: ValueConfig) -> dict[str, float]:
    """The columns that evaluations fill, with nan as on ticks without one."""
    return {"eval_return": float("nan")}


def label(values: Mapping[str, np.ndarray], place: int = 0) -> str:
    """A short label of an evaluation, for one of its seeds."""
    return f"return {signed(values['eval_return'][place])}"


def agent_columns(agents: Sequence[str]) -> list[str]:
    """The names of columns with the agents' returns: of plain characters, and different, whatever agents are called."""
    names = [re.sub(r"[^A-Za-z0-9_.-]+", "_", agent) for agent in agents]
    return [f"return_{name}" if names.count(name) == 1 else f"return_{name}_{i}" for i, name in enumerate(names)]


def columns(config: ValueConfig, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of the metrics table: name → float [seeds, ticks], from the arrays that a tick reports."""
    shown = {name: metrics[name] for name in ("length", "episodes", "loss", "epsilon", "updates")}
    apart = {name: metrics[name] for name in OF_ACTORS if name in metrics}
    if "agent_returns" in metrics:
        by_agent = np.moveaxis(metrics["agent_returns"], -1, 0)
        apart |= dict(zip(agent_columns(config.world.agents), by_agent, strict=True))
    return {"return": metrics["returns"], **shown, **apart}


def summary(config: ValueConfig, metrics: Mapping[str, np.ndarray]) -> list[str]:
    """Lines that summarise the training run."""
    parts = tenths(metrics["return"], metrics["episodes"])
    if not all(np.isfinite(part).all() for part in parts):
        count = int(np.nansum(metrics["episodes"]))
        if not count and metrics["return"].size:
            hint = f": `xladder check {config.name}` says whether its episodes end at all" if ":" in config.name else ""
            return [f"no episode ended while training{hint}"]
        return [f"{count} episode{'s' * (count != 1)} ended while training"]
    first, last = (format_mean(part) for part in parts)
    return [f"return per episode during training: {first} in the first tenth, {last} in the last"]


def headline(config: ValueConfig) -> str:
    """What a comparison runs, in addition to the workload's name."""
    return config.tick_description


def describe_score(score: Mapping[str, Any]) -> list[str]:
    """Lines that describe an evaluation."""
    over = "seeds" if score["seeds"] > 1 else "episodes"
    mean = _with_interval(score["mean_return"], score["ci95"], f" (95 % over {over})")
    count = f"{score['episodes']} episode{'s' * (score['episodes'] > 1)}" + " of each seed" * (score["seeds"] > 1)
    if left := score.get("unfinished"):
        count += f", of which {left} did not end and {'was' if left == 1 else 'were'} abandoned"
    lines = [
        f"mean return {mean}, median {signed(score['median_return'])}, ε = {score['epsilon']:g}, {count}",
        f"random play {_with_interval(score['random_return'], score['random_ci95'])}",
    ]
    if len(score.get("agents", ())) > 1:
        by_agent = {
            "per agent": score["per_agent"],
            "while the others act at random": score["against_random"],
            "all at random": score["random_per_agent"],
        }
        for what, values in by_agent.items():
            each = [f"{name} {signed(value)}" for name, value in zip(score["agents"], values, strict=True)]
            more = f", and {len(each) - MOST_AGENTS} more" if len(each) > MOST_AGENTS else ""
            lines.append(f"{what}: {', '.join(each[:MOST_AGENTS])}{more}")
    humans = {49: score.get("human49"), 57: score.get("human57")}
    known = [
        f"{signed(human, 2)} by the table of {games} games" for games, human in humans.items() if human is not None
    ]
    if known:
        lines.append(f"human-normalised {', '.join(known)} (0 is random play, 1 a human)")
    found, _, ideas = score.get("advice", "").partition(TO_TRY)
    if found:
        lines += [f"{found} To try:", *(f"  {idea.removesuffix('.')}" for idea in ideas.split("; "))]
    return [*lines, *([score["placing"]] if "placing" in score else []), *score.get("caveats", [])]


def _with_interval(mean: float, half_width: float, what: str = "") -> str:
    """`20.4 ± 0.3`; a single value has no interval."""
    return signed(mean) + (f" ± {signed(half_width)}{what}" if np.isfinite(half_width) else "")
