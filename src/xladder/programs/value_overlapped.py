"""The value learner on a device while the copies of its world are stepped by threads of the host.

The device has memory, agent and states; the host only passes actions to the worlds and frames to the device. Once the
actions of a step are known, the worlds take them, and while they run the device studies. It learns from what was
remembered before the step, as everywhere, so nothing depends on who is quicker: the same seed gives the same run, and
there are exactly as many updates for each step as asked for.

Shapes: N copies, T steps per tick, K updates per tick.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import jax
import numpy as np

from xladder.core import keys
from xladder.core.mapping import over_seeds
from xladder.core.types import Compiled, Params
from xladder.programs.value import Clock, Experiment, Program
from xladder.programs.value_host import Row, Score
from xladder.replay.history import Cursor
from xladder.worlds.copies import Step


class Overlapped:
    """One experiment, advanced by ticks."""

    def __init__(self, config: Any, seed: int, platform: str, compiled: Compiled):
        self.config, self.program = config, Program.for_device(config, platform)
        self.worlds = import_module(config.world.maker).on_host(config.world, config.world.num_envs, seed, compiled)
        self.tick, self.rows, self.score = 0, 0, Score(config.world.num_envs)
        self.length = self.program.window.length
        self._begin = compiled(_begin)
        self._choose = compiled(_choose)
        self._remember = compiled(_remember, donate=(2,))
        self._remember_and_choose = compiled(_remember_and_choose, donate=(2,))
        self._study = compiled(_study, donate=(2,))
        self.run: Experiment = self._begin(self.program, keys.root(seed), self.worlds.reset())

    def warm_up(self) -> None:
        """Compile every verb; what they compute is thrown away, the memory of a whole run excepted."""
        clock, zero = self.clock(0), np.int32(0)
        actions = self._choose(self.program, clock, self.run, zero)
        n, view = self.config.world.num_envs, self.program.view
        flags = np.zeros(n, bool)
        answer = Step(np.zeros((n, *view.shape), view.dtype), np.zeros(n, np.float32), flags, flags, flags)
        for verb, given in [
            (self._remember, (actions, answer)),
            (self._remember_and_choose, (actions, answer, zero, clock)),
            (self._study, ()),
        ]:
            verb.lower(self.program, clock, self.run, *given).compile()

    def clock(self, tick: int) -> Clock:
        """Before a tick; how far the memory is written is known here."""
        return Clock(np.int32(tick), Cursor(np.int32(self.rows % self.length), np.int32(min(self.rows, self.length))))

    def advance(self, ticks: int) -> dict[str, np.ndarray]:
        """Train for exactly so many ticks; device work is finished when this returns."""
        steps = self.config.steps_per_tick
        first, reports, losses = self.tick, [], []
        last = (first + ticks) * steps - 1
        actions = self._choose(self.program, self.clock(first), self.run, np.int32(first * steps))
        for tick in range(first, first + ticks):
            ended: list[tuple[float, int]] = []
            for t in range(steps):
                self.worlds.send(np.asarray(actions)[0])  # waits for the device to have chosen
                if t == steps - 1:
                    self.run, loss = self._study(self.program, self.clock(tick), self.run)  # while the worlds run
                    losses.append(loss)
                answer = self.worlds.recv()
                ended += self.score.add(answer)
                step, clock = tick * steps + t, self.clock(tick)
                self.rows += 1
                if step == last:
                    self.run = self._remember(self.program, clock, self.run, actions, answer)
                else:
                    following = np.int32(step + 1), self.clock((step + 1) // steps)
                    self.run, actions = self._remember_and_choose(
                        self.program, clock, self.run, actions, answer, *following
                    )
            learning = bool(self.program.is_learning(tick))
            epsilon = float(self.program.epsilon(tick))
            reports.append(Row(ended, np.nan, epsilon, self.config.updates_per_tick * learning).columns())
        self.tick = first + ticks
        columns = {name: np.stack([row[name] for row in reports]) for name in reports[0]}
        columns["loss"] = np.concatenate(jax.device_get(losses))
        jax.block_until_ready(self.run)
        return columns

    def phases(self, ticks: int = 20) -> dict[str, float]:
        """Median seconds per tick of updates alone, and of a tick without them; a tick does both at once."""
        study, whole = [], []
        for _ in range(ticks):
            begun = time.perf_counter()
            self.run, loss = self._study(self.program, self.clock(self.tick), self.run)
            jax.block_until_ready(loss)
            study.append(time.perf_counter() - begun)
        for _ in range(ticks):
            begun = time.perf_counter()
            for _ in range(self.config.steps_per_tick):
                step = np.int32(self.tick * self.config.steps_per_tick)
                self.worlds.send(np.asarray(self._choose(self.program, self.clock(self.tick), self.run, step))[0])
                self.worlds.recv()
            whole.append(time.perf_counter() - begun)
        return {"sampling": float(np.median(whole)), "update": float(np.median(study))}

    def params(self) -> Params:
        """Parameters as NumPy arrays, leaves [1, …]."""
        return jax.tree.map(np.asarray, self.run.agent.params)

    def close(self) -> None:
        """End the worlds' threads."""
        self.worlds.close()


def _begin(program: Program, key: jax.Array, frames: jax.Array) -> Experiment:
    return jax.tree.map(lambda x: x[None], program.begin(key, frames))


def _choose(program: Program, clock: Clock, run: Experiment, step: jax.Array) -> jax.Array:
    epsilon = program.epsilon(clock.tick)
    return over_seeds(lambda one: program.choose(one.agent, one.seen, program.draw_act(one.key, step), epsilon), run)


def _remember(program: Program, clock: Clock, run: Experiment, actions: jax.Array, answer: Step) -> Experiment:
    answers = jax.tree.map(lambda x: jax.numpy.asarray(x)[None], answer)
    return over_seeds(lambda one: program.remember(clock.cursor, *one)[0], (run, actions, answers))


def _remember_and_choose(
    program: Program,
    clock: Clock,
    run: Experiment,
    actions: jax.Array,
    answer: Step,
    next_step: jax.Array,
    next_clock: Clock,
) -> tuple[Experiment, jax.Array]:
    run = _remember(program, clock, run, actions, answer)
    return run, _choose(program, next_clock, run, next_step)


def _study(program: Program, clock: Clock, run: Experiment) -> tuple[Experiment, jax.Array]:
    return program.study(clock, run)
