"""The value learner on a device, with envs that host threads step at the same time.

The device holds replay memory, agent and states; the host only passes actions to the envs and frames to the device.
Once the actions of a step are known, the envs start to step, and the device learns while they run. As on every rung,
batches are drawn from what was stored before the step, so timing does not matter: the same seed gives the same run,
with exactly the requested number of updates per step.

Over several devices or processes (`core/placement.py`) each has its part of the envs, memories and batches, and the
gradients are averaged. The functions below then run on every device with that device's part.

Shapes: N envs, n of them in this process, A agents (1 for a single agent), T steps per tick, K updates per tick.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.mapping import over_seeds
from xladder.core.placement import HERE, SAME, Placement
from xladder.core.types import Compiled, Params
from xladder.families.value.acting import Choice
from xladder.families.value.config import ValueConfig
from xladder.families.value.program import Counters, Program, TrainState
from xladder.families.value.stepping import Ended, HostEpisodeTotals, Report
from xladder.replay.history import Cursor
from xladder.worlds.envs import Step, with_forced

# The env axis of every field of a `TrainState`, leaves [A, N, …].
RUN = TrainState(key=SAME, agent=SAME, memory=1, priorities=SAME, seen=1, score=1, row=1, worlds=SAME)  # type: ignore


class Overlapped:
    """One run, advanced tick by tick."""

    def __init__(self, config: ValueConfig, seed: int, platform: str, compiled: Compiled, placement: Placement = HERE):
        self.config, self.placement = config, placement
        self.program = replace(Program.for_device(config, platform), data_parallel=placement.data_parallel)
        own = placement.own_envs(config.world.num_envs)
        self.tick, self.rows, self.length = 0, 0, self.program.window.length
        self.score = HostEpisodeTotals((own.stop - own.start) * self.program.num_agents)
        self.worlds = config.world.on_host(own.stop - own.start, seed, compiled, own.start)
        try:
            self._start(seed, compiled)
        except BaseException:
            self.close()
            raise

    def _start(self, seed: int, compiled: Compiled) -> None:
        """Reset the envs, initialise the agents and compile everything."""
        spec, placement = self.program.spec, self.placement
        frames = self.worlds.reset()
        self.axis = envs = int(bool(spec.agents))  # the env axis of what the worlds return
        step = (SAME, RUN, 1, envs, envs)  # times, run, choice, frames, facts
        begin = compiled(placement.spread(_begin, (SAME, envs), RUN))
        self.run: TrainState = begin(self.program, keys.root(seed), placement.by_env(frames, envs))  # leaves [A, …]
        times, lead = self.times(0, 0), frames.shape[: frames.ndim - len(spec.shape)]
        self._choose = compiled(placement.spread(_choose, (RUN, SAME), 1))
        choice, flags = self._choose(self.program, self.run, times), np.zeros(lead, bool)
        nothing = np.zeros((*lead, *spec.shape), spec.dtype), np.zeros(lead, np.float32)
        given = self.program, times, self.run, choice, *self._send_back(Step(*nothing, flags, flags, flags))
        # Compiled here, so that no tick of the run waits for compilation.
        self._remember = compiled(placement.spread(_remember, step, RUN), donate=(2,)).lower(*given).compile()
        both = placement.spread(_remember_and_choose, step, (RUN, 1))
        self._remember_and_choose = compiled(both, donate=(2,)).lower(*given).compile()
        learn = compiled(placement.spread(_learn, (SAME, RUN), (RUN, SAME)), donate=(2,))
        self._learn = learn.lower(self.program, times, self.run).compile()

    def times(self, tick: int, next_step: int) -> Any:
        """int32 [4]: tick, cursor (head, size) and the step to choose actions for, in one transfer."""
        head, size = self.rows % self.length, min(self.rows, self.length)
        return self.placement.everywhere(np.array([tick, head, size, next_step], np.int32))

    def advance(self, ticks: int) -> dict[str, np.ndarray]:
        """Train for `ticks` ticks. Returns the metrics, after all device work is done."""
        steps = self.config.steps_per_tick
        first, ended, reports, losses = self.tick, list[Ended](), [], []
        last = (first + ticks) * steps - 1
        choice = self._choose(self.program, self.run, self.times(first, first * steps))
        for tick in range(first, first + ticks):
            for t in range(steps):
                step = tick * steps + t
                choice = self._send(choice)
                if t == steps - 1:
                    losses.append(self.learn_if_ready(tick))  # while the envs step
                answer = self.worlds.recv()
                given = self.times(tick, step + 1), self.run, choice, *self._send_back(answer)
                if step == last:
                    self.run = self._remember(*given)
                else:
                    self.run, choice = self._remember_and_choose(*given)
                self.rows += 1
                ended.append(self.score.add(answer))  # while the device chooses actions
            reports.append(self._report(tick, ended[-steps:]))
        self.tick = first + ticks
        if self.placement.processes > 1:
            ended = self._of_all(ended)
            reports = [self._report(first + i, ended[i * steps : (i + 1) * steps]) for i in range(ticks)]
        columns = {name: np.stack([row[name] for row in reports]) for name in reports[0]}
        columns["loss"] = np.stack(jax.device_get(losses)).mean(1)
        jax.block_until_ready(self.run)
        return columns

    def _report(self, tick: int, ended: Sequence[Ended]) -> dict[str, Any]:
        """The metrics of a tick but for the loss."""
        updates = self.config.updates_per_tick * bool(self.program.is_learning(tick))
        return Report(ended, (), float(self.program.epsilon(tick)), updates, len(self.program.spec.agents)).columns()

    def _of_all(self, ended: Sequence[Ended]) -> list[Ended]:
        """The episodes that ended in all processes, for every step."""
        shape = (len(ended), 2, self.program.num_agents, -1)
        found = self.placement.gather(np.stack([np.stack(step) for step in ended]).reshape(shape), axis=3)
        return [Ended(*step.reshape(2, -1)) for step in found]

    def learn_if_ready(self, tick: int) -> Any:
        """Dispatch the updates of a tick without waiting for them."""
        if not self.program.is_learning(tick):
            return np.full(self.program.num_agents, np.nan, np.float32)
        self.run, loss = self._learn(self.times(tick, 0), self.run)
        return loss

    def phases(self, ticks: int = 20) -> dict[str, float]:
        """Median seconds per tick of the updates alone, and of everything else; a tick overlaps the two."""
        updating, whole = [], []
        for _ in range(ticks):
            begun = time.perf_counter()
            jax.block_until_ready(self.learn_if_ready(self.tick))
            updating.append(time.perf_counter() - begun)
        for _ in range(ticks):
            begun = time.perf_counter()
            for _ in range(self.config.steps_per_tick):
                times = self.times(self.tick, self.tick * self.config.steps_per_tick)
                self._send(self._choose(self.program, self.run, times))
                self.worlds.recv()
            whole.append(time.perf_counter() - begun)
        return {"sampling": float(np.median(whole)), "update": float(np.median(updating))}

    def params(self) -> Params:
        """Parameters as NumPy arrays, leaves [1, …], or [1, A, …]."""
        params = jax.tree.map(np.asarray, self.run.agent.params)
        return jax.tree.map(lambda x: x[None], params) if self.program.spec.agents else params

    def to_program(self) -> tuple[Counters, TrainState]:
        """The run's state in the layout of `sequential` and `fused`; the pending row is stored already."""
        head, size = max(self.rows - 1, 0) % self.length, min(max(self.rows - 1, 0), self.length)
        worlds: Any = ()
        if hasattr(self.worlds, "place"):
            worlds = jax.tree.map(lambda x: self.placement.gather(x, axis=0)[None], self.worlds.place())
        counters = Counters(jnp.int32(self.tick), Cursor(jnp.int32(head), jnp.int32(size)))
        return counters, self.program.from_rows(self.placement.whole(self.run)._replace(worlds=worlds))

    def from_program(self, counters: Counters, run: TrainState) -> None:
        """The inverse of `to_program`: load a program's state."""
        self.tick = int(counters.tick)
        self.rows = self.tick * self.config.steps_per_tick
        worlds, rows = run.worlds, self.program.as_rows(run)._replace(worlds=())
        if worlds:
            own = self.placement.own_envs(self.config.world.num_envs)
            self.worlds.go_to(jax.tree.map(lambda x: x[0][own], worlds), self.rows)
            self.score.total, self.score.steps = (np.array(column)[:, own].ravel() for column in rows.score)
        self.run = self.placement.place(rows, self.run)

    def _send(self, choice: Choice) -> Choice:
        """Start a step, once the device has chosen the actions. Returns those that are taken: envs may force some."""
        here = self.placement.own(choice.actions, axis=1)
        chosen = here if self.program.spec.agents else here[0]  # [A, n] or [n]
        taken = with_forced(self.worlds, chosen)
        self.worlds.send(taken)
        return choice if taken is chosen else choice._replace(actions=self.placement.by_env(taken[None], 1))

    def _send_back(self, answer: Step) -> list[Any]:
        """What the envs returned, on the devices."""
        return [self.placement.by_env(array, self.axis) for array in pack(answer)]

    def close(self) -> None:
        """Close the envs."""
        self.worlds.close()


def _begin(program: Program, key: jax.Array, frames: jax.Array) -> TrainState:
    """The initial states of all agents, leaves [A, …]; [1, …] for a single agent."""
    begin = partial(program.begin, data_parallel=program.data_parallel)
    if program.spec.agents:
        return jax.vmap(begin)(keys.of_agents(key, program.num_agents), frames)
    return jax.tree.map(lambda x: x[None], begin(key, frames))


def pack(answer: Step) -> tuple[np.ndarray, np.ndarray]:
    """Frames, and the rest as one float32 array [N, 4] or [A, N, 4]: every array costs a transfer."""
    return np.ascontiguousarray(answer.frame), np.stack(answer[1:], axis=-1, dtype=np.float32)


def _choose(program: Program, run: TrainState, times: jax.Array) -> Choice:
    step = times[3]
    epsilon = program.epsilon(step // program.config.steps_per_tick)
    playing = run.acting()
    return over_seeds(
        lambda one: program.choose(
            one.agent, one.seen, program.data_parallel.local(program.draw_act(one.key, step)), epsilon
        ),
        playing,
    )


def _remember(
    program: Program, times: jax.Array, run: TrainState, choice: Choice, frames: jax.Array, facts: jax.Array
) -> TrainState:
    answers = Step(frames, facts[..., 0], *(facts[..., i] > 0 for i in (1, 2, 3)))
    if not program.spec.agents:
        answers = jax.tree.map(lambda x: x[None], answers)
    # The replay memory is not mapped: see `Program.sample`.
    seen, *_ = over_seeds(lambda one: program.observe(*one), (run.acting(), choice, answers))
    return program.store_all(_counters(times).cursor, seen._replace(memory=run.memory, priorities=run.priorities))


def _remember_and_choose(
    program: Program, times: jax.Array, run: TrainState, choice: Choice, frames: jax.Array, facts: jax.Array
) -> tuple[TrainState, Choice]:
    run = _remember(program, times, run, choice, frames, facts)
    return run, _choose(program, run, times)


def _learn(program: Program, times: jax.Array, run: TrainState) -> tuple[TrainState, jax.Array]:
    counters = _counters(times)
    agent, priority_state, loss = program.learn(counters, run.agent, run.priorities, program.sample(counters, run))
    return run._replace(agent=agent, priorities=priority_state), loss


def _counters(times: jax.Array) -> Counters:
    return Counters(times[0], Cursor(times[1], times[2]))
