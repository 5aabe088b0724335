"""The pictures of a value learner: its curves' panels, and a game that it plays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.core.types import Params
from xladder.families.value import atari_presets
from xladder.families.value.evaluation import EvaluationActor, choose_one
from xladder.pictures.curves import Panel, value_panels
from xladder.pictures.game_frames import draw_observations
from xladder.pictures.game_gif import write_game_gif

if TYPE_CHECKING:
    from xladder.results import Result

MOST_STEPS = 3000  # of a game that is shown


def panels(config: Any) -> tuple[Panel, ...]:
    """The panels of the learning curves."""
    return value_panels(bool(config.interval))


def references(score: Mapping[str, Any] | None) -> dict[str, float]:
    """Lines across the curves."""
    return {"random play": score["random_return"]} if score else {}


def draw(result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
    """Write a GIF of a game of the best seed's agent, if the run was scored. Returns what was drawn."""
    if score is None:
        return {}
    reached = result.metrics.get("eval_return", result.metrics["return"])
    means = [row[np.isfinite(row)][-50:].mean() if np.isfinite(row).any() else -np.inf for row in reached]
    frames, rewards, how = watch(result.config, pick(result.params, int(np.argmax(means))))
    path = folder / "replay.gif"
    write_game_gif(path, frames, rewards, title, draw=how)
    return {"replay": path}


def watch(config: Any, params: Params, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Any]:
    """One game: frames [T, …], rewards [T], and how to make pictures of the frames, or None if they are pictures."""
    if isinstance(config.world, atari_presets.WorldConfig):
        return _screens(config, params, seed)
    actor = EvaluationActor(config, params, 1, seed, compiled)
    try:
        frames, rewards = [actor.games.stack[0, -1]], [0.0]
        for step in range(MOST_STEPS):
            answer = actor.advance(step, config.evaluate_epsilon).step
            if answer.is_first[0]:
                break
            frames.append(answer.frame[0])
            rewards.append(float(answer.reward.sum()))
    finally:
        actor.close()
    return np.stack(frames), np.array(rewards), partial(draw_observations, config.name)


def _screens(config: Any, params: Params, seed: int) -> tuple[np.ndarray, np.ndarray, None]:
    """The same as the emulator's own screens, in colour."""
    policy = choose_one(config, params, seed, compiled)
    from xladder.worlds.atari_host import options, play_rgb

    emulator = options(config.world)
    played = play_rgb(
        config.world.name, policy, seed, frames_per_state=config.world.stack, most_steps=MOST_STEPS, **emulator
    )
    return played.screens, np.concatenate([[0.0], played.rewards]), None
