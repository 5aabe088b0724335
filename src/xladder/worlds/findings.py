"""What `xladder check` finds in a world, and the checks that are the same for all kinds of worlds.

Shapes: N envs, A agents, T steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from xladder.worlds.envs import EnvSpec, Step

STEPS, LONGEST = 256, 10_240


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
        stuck = np.argwhere(acts & ~(frames[..., -spec.actions :] > 0).any(-1))
        if len(stuck):
            step, agent = stuck[0][:2]
            yield broken(
                f"agent {spec.agents[agent]} has no available action after {step} steps, although its episode goes on"
            )


def article(word: str) -> str:
    """`a` or `an`."""
    return "an" if word[0] in "aeiou" else "a"
