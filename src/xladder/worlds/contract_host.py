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
from xladder.worlds.envs import HostEnvs, Step
from xladder.worlds.findings import LONGEST, STEPS, Finding, broken, check_values, kept, noted
from xladder.worlds.host_calls import random_actions

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def check_gym(name: str) -> Iterator[Finding]:
    """Step the world, then run Gymnasium's own check."""
    from xladder.worlds.gym_host import GymEnvs

    envs = GymEnvs(name, 2, 0)
    spec = envs.spec
    frames, steps = _play_on_host(envs)
    yield kept(f"it can be stepped: frames are {spec.dtype} {list(spec.shape)}, {spec.actions} actions")
    yield from check_values("step", spec, frames, steps)
    import gymnasium
    from gymnasium.utils.env_checker import check_env

    said = kept("Gymnasium's `check_env` finds nothing")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = gymnasium.make(name.removeprefix("gym/"))
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


def check_zoo(name: str) -> Iterator[Finding]:
    """Step the world, then run PettingZoo's own check."""
    from xladder.worlds.zoo_host import ZooEnvs, make

    envs = ZooEnvs(name, 2, 0)
    spec = envs.spec
    agents = f"{len(spec.agents)} agent{'s' * (len(spec.agents) > 1)}"
    yield kept(f"frames are {spec.dtype} {list(spec.shape)}, {spec.actions} actions, {agents}")
    frames, steps = _play_on_host(envs)
    faults = list(check_values("step", spec, frames, steps))
    yield from faults
    if not faults:
        yield kept("observations and rewards are finite numbers")
    ended = steps.is_first.any()
    yield kept("episodes end and restart") if ended else noted(f"no episode ended within {LONGEST // 10:,} steps")
    from pettingzoo.test import parallel_api_test

    made = make(name)
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


def _play_on_host(envs: HostEnvs) -> tuple[np.ndarray, Step]:
    """Random actions until an episode has ended: frames and steps, leaves [T, …]; closes the envs."""
    rng, frames = np.random.default_rng(0), [envs.reset()]
    steps: list[Step] = []
    while len(steps) < LONGEST // 10 and not (len(steps) >= STEPS and any(step.is_first.any() for step in steps)):
        envs.send(random_actions(envs.spec, frames[-1], rng))
        steps.append(envs.recv())
        frames.append(steps[-1].frame)
    envs.close()
    return np.stack(frames), Step(*map(np.stack, zip(*steps, strict=True)))
