"""What `xladder check` finds in a world, and the checks that are the same for all kinds of worlds.

Shapes: N envs, A agents, T steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from xladder.core.statistics import counted
from xladder.worlds.envs import EnvSpec, Step, available

STEPS, LONGEST = 256, 10_240
LARGE = 1e6  # rewards, added up: a float32 has seven digits


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    kind: Literal["kept", "noted", "broken"]
    sentence: str


def kept(sentence: str) -> Finding:
    """A check that passed."""
    return Finding("kept", sentence)


def noted(sentence: str) -> Finding:
    """Something allowed that is worth knowing."""
    return Finding("noted", sentence)


def broken(sentence: str) -> Finding:
    """Something that would spoil training."""
    return Finding("broken", sentence)


def check_values(step_name: str, spec: EnvSpec, frames: np.ndarray, steps: Step) -> Iterator[Finding]:
    """Check that numbers are finite, and that every agent always has an action; frames and steps [T, …]."""
    for field, values in [("observation", frames), ("reward", steps.reward)]:
        if np.asarray(values).dtype.kind == "f" and not np.isfinite(values).all():
            yield broken(f"`{step_name}` returns {article(field)} {field} that is not a finite number")
            return
    if spec.masked:
        acts = np.concatenate([np.ones_like(steps.is_first[:1]), ~(steps.terminated | steps.truncated)])
        stuck = np.argwhere(acts & ~available(spec, frames).any(-1))
        if len(stuck):
            step, agent = stuck[0][:2]
            who = f"agent {spec.agents[agent]}" if spec.agents else "the agent"
            yield broken(f"{who} has no available action after {step} steps, although its episode goes on")


def check_ends(step_name: str, steps: Step, later: Callable[[], bool]) -> Iterator[Finding]:
    """Check that episodes end; steps [T, …]. `later`: whether one does within `LONGEST` steps, if not in these."""
    if steps.is_first.any():
        absent = steps.terminated & steps.truncated
        ends, cuts = ((flags & ~absent).sum() for flags in (steps.terminated, steps.truncated))
        ended = f"{counted(ends, 'termination')} and {counted(cuts, 'truncation')}"
        yield kept(f"episodes end and restart: {ended} with random actions")
    elif later():
        yield noted(f"no episode ended within {len(steps.reward):,} steps of random actions, but some did later")
    else:
        yield broken(
            f"no episode ended within {LONGEST:,} steps of random actions: `{step_name}` never ends one, and there is "
            "no time limit"
        )


def remarks(spec: EnvSpec, steps: Step) -> Iterator[Finding]:
    """What is allowed in any world, but rarely meant; steps [T, …]."""
    if spec.masked:
        yield noted("which actions are available is appended to the frames")
    if spec.actions == 1:
        yield noted("there is only one action, so nothing can be learned")
    largest = float(np.abs(steps.reward).max())
    if not largest:
        yield noted(f"random actions got no reward in {len(steps.reward) * steps.reward.shape[-1]:,} steps")
    if largest > LARGE:
        yield noted(f"rewards are as large as {largest:.3g}: scale them down, or use `--learner.reward-scale`")


def article(word: str) -> str:
    """`a` or `an`."""
    return "an" if word[0] in "aeiou" else "a"
