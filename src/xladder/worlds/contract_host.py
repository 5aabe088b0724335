"""Checks of a world on the host: a few envs are stepped with random actions, and the checker of its API is asked.

Shapes: N envs, A agents, T steps.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout

import numpy as np

from xladder.errors import brief
from xladder.worlds.envs import EnvSpec, HostEnvs, Step
from xladder.worlds.findings import LONGEST, STEPS, Finding, broken, check_ends, check_values, kept, noted, remarks
from xladder.worlds.host_calls import random_actions

KEPT = LONGEST // 10  # steps: frames may be large
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def check_gym(name: str, kwargs: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Step the world, then run Gymnasium's own check."""
    from xladder.worlds.gym_host import GymEnvs

    envs = GymEnvs(name, 2, 0, kwargs=kwargs)
    spec = envs.spec
    frames, steps, ended = _play_on_host(envs)
    yield kept(f"it can be stepped: frames are {spec.dtype} {list(spec.shape)}, {spec.actions} actions")
    yield from _check_play(spec, frames, steps, ended)
    from gymnasium.utils.env_checker import check_env

    from xladder.worlds.gym_making import Recipe, found_object, make_one

    said = kept("Gymnasium's `check_env` finds nothing")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recipe = Recipe(name.removeprefix("gym/"), kwargs)
        env = make_one(recipe, found_object(recipe.name))
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except (Exception, SystemExit) as error:
            said = broken(f"Gymnasium's `check_env` says: {brief(error)}")
        finally:
            env.close()
    yield said
    plain = (COLOURS.sub("", str(warning.message)).removeprefix("WARN: ") for warning in caught)
    for line in list(dict.fromkeys(" ".join(text.split()) for text in plain))[:3]:
        yield noted(f"Gymnasium says: {line[:200]}")


def check_zoo(name: str, kwargs: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Step the world, then run PettingZoo's own check."""
    from xladder.worlds.zoo_host import ZooEnvs, make

    envs = ZooEnvs(name, 2, 0, kwargs=kwargs)
    spec = envs.spec
    agents = f"{len(spec.agents)} agent{'s' * (len(spec.agents) > 1)}"
    yield kept(f"frames are {spec.dtype} {list(spec.shape)}, {spec.actions} actions, {agents}")
    yield from _check_play(spec, *_play_on_host(envs))
    from pettingzoo.test import parallel_api_test

    made = make(name, kwargs)
    said = kept("PettingZoo's `parallel_api_test` passes")
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):  # it prints that it has passed
        warnings.simplefilter("ignore")
        try:
            parallel_api_test(made, num_cycles=200)
        except (Exception, SystemExit) as error:
            said = broken(f"PettingZoo's `parallel_api_test` says: {brief(error)}")
        finally:
            made.close()
    yield said


def _check_play(spec: EnvSpec, frames: np.ndarray, steps: Step, ended: bool) -> Iterator[Finding]:
    """Check what was played."""
    faults = list(check_values("step", spec, frames, steps))
    yield from faults or [kept("observations and rewards are finite numbers")]
    yield from check_ends("step", steps, lambda: ended)
    if not faults:
        yield from remarks(spec, steps)


def _play_on_host(envs: HostEnvs) -> tuple[np.ndarray, Step, bool]:
    """Random actions until an episode has ended; closes the envs.

    Returns:
        The first frames and steps, leaves [T, …], and whether an episode has ended then or later.
    """
    rng, frame, ended = np.random.default_rng(0), envs.reset(), False
    frames, steps = [frame], []
    for t in range(LONGEST):
        if ended and t >= STEPS:
            break
        envs.send(random_actions(envs.spec, frame, rng))
        step = envs.recv()
        frame, ended = step.frame, ended or bool(step.is_first.any())
        if t < KEPT:
            frames.append(frame)
            steps.append(step)
    envs.close()
    return np.stack(frames), Step(*map(np.stack, zip(*steps, strict=True))), ended
