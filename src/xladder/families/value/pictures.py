"""Pictures of a value learner: the panels of its curves, and a replay of one episode."""

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
from xladder.families.value.config import ValueConfig
from xladder.families.value.evaluation import EvaluationActor, choose_one
from xladder.pictures.curves import Panel, value_panels
from xladder.pictures.game_frames import draw_observations
from xladder.pictures.game_gif import write_game_gif

if TYPE_CHECKING:
    from xladder.results import Result

MOST_STEPS = 3000  # of a replay


def panels(config: ValueConfig) -> tuple[Panel, ...]:
    """The panels of the learning curves."""
    return value_panels(bool(config.interval))


def references(score: Mapping[str, Any] | None) -> dict[str, float]:
    """Reference lines for the curves."""
    return {"random play": score["random_return"]} if score else {}


def draw(result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
    """Write a GIF of one episode of the best seed's agent, if the run was evaluated. Returns the files."""
    if score is None:
        return {}
    reached = result.metrics.get("eval_return", result.metrics["return"])
    means = [row[np.isfinite(row)][-50:].mean() if np.isfinite(row).any() else -np.inf for row in reached]
    frames, rewards, how = watch(result.config, pick(result.params, int(np.argmax(means))))
    path = folder / "replay.gif"
    write_game_gif(path, frames, rewards, title, draw=how)
    return {"replay": path}


def watch(config: ValueConfig, params: Params, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Any]:
    """One episode: frames [T, …], rewards [T], and a function that renders frames, or None if they are images."""
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


def _screens(config: ValueConfig, params: Params, seed: int) -> tuple[np.ndarray, np.ndarray, None]:
    """One episode as the emulator's colour screens."""
    policy = choose_one(config, params, seed, compiled)
    from xladder.worlds.atari_host import options, play_rgb

    emulator = options(config.world)
    played = play_rgb(
        config.world.name, policy, seed, frames_per_state=config.world.stack, most_steps=MOST_STEPS, **emulator
    )
    return played.screens, np.concatenate([[0.0], played.rewards]), None
