"""Pictures of a value learner: the panels of its curves, and a replay of one episode, as a GIF or for a page."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.core.types import Params
from xladder.families.value import atari_presets
from xladder.families.value.config import ValueConfig
from xladder.families.value.evaluation import EvaluationActor, choose_one, policy
from xladder.pictures.curves import Panel, value_panels
from xladder.pictures.game_frames import draw_observations
from xladder.pictures.game_gif import write_game_gif
from xladder.pictures.scenes import FILM_BYTES, FILM_FRAMES, Film, pack, pack_film

if TYPE_CHECKING:
    from xladder.pictures.scenes import Scene
    from xladder.results import Result

MOST_STEPS = 3000  # of a replay
VALUED_AT_ONCE = 128  # states per call of the network, always as many, so that it is compiled once
ACTIONS = {
    "cartpole": ["left", "right"],
    "mountaincar": ["left", "none", "right"],
    "acrobot": ["torque −1", "none", "torque +1"],
}
"""Names of actions where the world itself has none."""


class Episode(NamedTuple):
    """One recorded episode."""

    frames: np.ndarray  # [T, …]
    rewards: np.ndarray  # float [T]: on arriving at each frame; 0 for the first
    how: Any
    """A function that renders frames; None if they are images."""
    states: np.ndarray  # [T − 1, F, …]: what the first agent saw
    actions: np.ndarray  # int [T − 1]: what it did


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
    frames, rewards, how = watch(result.config.acting, pick(result.params, best_seed(result)))
    path = folder / "replay.gif"
    write_game_gif(path, frames, rewards, title, draw=how)
    return {"replay": path}


def best_seed(result: Result) -> int:
    """The place of the seed with the highest return in the end; the first if there are no metrics."""
    reached = result.metrics.get("eval_return", result.metrics.get("return"))
    if reached is None:
        return 0
    means = [row[np.isfinite(row)][-50:].mean() if np.isfinite(row).any() else -np.inf for row in reached]
    return int(np.argmax(means))


def scenes(result: Result) -> list[Scene]:
    """One episode of the best seed's agent as a film, with what it expected of its actions."""
    best, config = best_seed(result), result.config.acting
    params = pick(result.params, best)
    played = play(config, params)
    values = _values(config, params, played.states)
    title = f"one episode of the agent of seed {result.seeds[best]}"
    if config.world.agents:
        title += f"; values and actions of {config.world.agents[0]}, rewards of all"
    return [make_film(title, played, values, _action_names(config, values.shape[1]))]


def make_film(title: str, played: Episode, values: np.ndarray, names: list[str]) -> Film:
    """A film of at most `FILM_FRAMES` frames and about `FILM_BYTES`; long episodes are shortened to every k-th step."""
    steps = len(played.frames)
    every = -(-steps // FILM_FRAMES)
    while True:
        shown = np.unique([*range(0, steps, every), steps - 1])
        frames = played.frames[shown] if played.how is None else played.how(played.frames[shown])
        film, palette = pack_film(frames)
        if len(film["data"]) <= FILM_BYTES or every >= steps:
            break
        every = max(every + 1, round(every * len(film["data"]) / FILM_BYTES))
    return {
        "kind": "film",
        "title": title,
        "palette": palette,
        "frames": film,
        "shown": shown.tolist(),
        "rewards": pack(played.rewards.astype(np.float32)),
        "actions": pack(played.actions.astype(np.uint16)),
        "action_names": names,
        "values": pack(values.astype(np.float32)),
    }


def _values(config: ValueConfig, params: Params, states: np.ndarray) -> np.ndarray:
    """float32 [T, A]: the first agent's values; without noise, as `policy` computes them."""
    one = pick(params, 0) if config.agent_axis else params
    value = policy(config, one, compiled).values
    if config.learner.recurrent:
        return np.stack([value(state) for state in states])
    count = len(states)
    padded = np.concatenate([states, np.zeros((-count % VALUED_AT_ONCE, *states.shape[1:]), states.dtype)])
    parts = [value(padded[i : i + VALUED_AT_ONCE]) for i in range(0, len(padded), VALUED_AT_ONCE)]
    return np.concatenate(parts)[:count]


def _action_names(config: ValueConfig, count: int) -> list[str]:
    if isinstance(config.world, atari_presets.WorldConfig):
        from xladder.worlds.atari_host import action_names

        names = [name.lower() for name in action_names(config.world.name)]
    else:
        names = next((names for world, names in ACTIONS.items() if world in config.name.lower()), [])
    return names if len(names) == count else [str(i) for i in range(count)]


def watch(config: ValueConfig, params: Params, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Any]:
    """One episode: frames [T, …], rewards [T], and a function that renders frames, or None if they are images."""
    played = play(config, params, seed)
    return played.frames, played.rewards, played.how


def play(config: ValueConfig, params: Params, seed: int = 0) -> Episode:
    """Record one episode of one seed's agents."""
    if isinstance(config.world, atari_presets.WorldConfig):
        return _screens(config, params, seed)
    actor = EvaluationActor(config, params, 1, seed, compiled)
    try:
        frames, rewards, states, actions = [actor.games.stack[0, -1]], [0.0], [], []
        for step in range(MOST_STEPS):
            seen = actor.games.seen_by(0)[0]
            made = actor.advance(step, config.evaluate_epsilon)
            answer = made.step
            states.append(seen)
            actions.append(int(made.actions[0]))
            if answer.is_first[0]:
                break
            frames.append(answer.frame[0])
            rewards.append(float(answer.reward.sum()))
    finally:
        actor.close()
    shown, spec = np.stack(frames), config.world.spec()
    if spec.masked:
        shown = shown[..., : -spec.actions]
    how = partial(draw_observations, config.name)
    return Episode(shown, np.array(rewards), how, np.stack(states), np.array(actions))


def _screens(config: ValueConfig, params: Params, seed: int) -> Episode:
    """One episode as the emulator's colour screens."""
    choose, states = choose_one(config, params, seed, compiled), []

    def policy(state: np.ndarray) -> int:
        states.append(state)
        return choose(state)

    from xladder.worlds.atari_host import options, play_rgb

    emulator = options(config.world)
    played = play_rgb(
        config.world.name, policy, seed, frames_per_state=config.world.stack, most_steps=MOST_STEPS, **emulator
    )
    rewards = np.concatenate([[0.0], played.rewards])
    return Episode(played.screens, rewards, None, np.stack(states), played.actions)
