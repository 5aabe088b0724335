"""The value learner on a device, with envs that host threads step at the same time.

The device holds replay memory, agent and states; the host only passes actions to the envs and frames to the device.
Once the actions of a step are known, the envs start to step, and the device learns while they run. As on every rung,
batches are drawn from what was stored before the step, so timing does not matter: the same seed gives the same run,
with exactly the requested number of updates per step.

Shapes: N envs, T steps per tick, K updates per tick.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.mapping import over_seeds
from xladder.core.types import Array, Compiled, Params
from xladder.families.value.config import ValueConfig
from xladder.families.value.program import Counters, Program, TrainState
from xladder.families.value.stepping import Ended, HostEpisodeTotals, Report
from xladder.replay.history import Cursor
from xladder.worlds.envs import Step, with_forced


class Overlapped:
    """One run, advanced tick by tick."""

    def __init__(self, config: ValueConfig, seed: int, platform: str, compiled: Compiled):
        self.config, self.program = config, Program.for_device(config, platform)
        self.worlds = config.world.on_host(config.world.num_envs, seed, compiled)
        n, spec = config.world.rows, self.program.spec
        self.tick, self.rows, self.score = 0, 0, HostEpisodeTotals(n * self.program.num_agents)
        self.length = self.program.window.length
        frames = self.worlds.reset()
        self.run: TrainState = compiled(_begin)(self.program, keys.root(seed), frames)  # leaves [A, …]
        times, lead = self.times(0, 0), frames.shape[: frames.ndim - len(spec.shape)]
        self._choose = compiled(_choose)
        actions, flags = self._choose(self.program, self.run, times), np.zeros(lead, bool)
        nothing = np.zeros((*lead, *spec.shape), spec.dtype), np.zeros(lead, np.float32)
        answer = pack(Step(*nothing, flags, flags, flags))
        given = self.program, times, self.run, actions, *answer
        # Compiled here, so that no tick of the run waits for compilation.
        self._remember = compiled(_remember, donate=(2,)).lower(*given).compile()
        self._remember_and_choose = compiled(_remember_and_choose, donate=(2,)).lower(*given).compile()
        self._learn = compiled(_learn, donate=(2,)).lower(self.program, times, self.run).compile()

    def times(self, tick: int, next_step: int) -> np.ndarray:
        """int32 [4]: tick, cursor (head, size) and the step to choose actions for, in one transfer."""
        return np.array([tick, self.rows % self.length, min(self.rows, self.length), next_step], np.int32)

    def advance(self, ticks: int) -> dict[str, np.ndarray]:
        """Train for `ticks` ticks. Returns the metrics, after all device work is done."""
        steps = self.config.steps_per_tick
        first, reports, losses = self.tick, [], []
        last = (first + ticks) * steps - 1
        actions = self._choose(self.program, self.run, self.times(first, first * steps))
        for tick in range(first, first + ticks):
            ended = list[Ended]()
            for t in range(steps):
                step = tick * steps + t
                actions = self._send(actions)
                if t == steps - 1:
                    losses.append(self.learn_if_ready(tick))  # while the envs step
                answer = self.worlds.recv()
                given = self.times(tick, step + 1), self.run, actions, *pack(answer)
                if step == last:
                    self.run = self._remember(*given)
                else:
                    self.run, actions = self._remember_and_choose(*given)
                self.rows += 1
                ended.append(self.score.add(answer))  # while the device chooses actions
            learning = bool(self.program.is_learning(tick))
            epsilon = float(self.program.epsilon(tick))
            updates = self.config.updates_per_tick * learning
            reports.append(Report(ended, (), epsilon, updates, len(self.program.spec.agents)).columns())
        self.tick = first + ticks
        columns = {name: np.stack([row[name] for row in reports]) for name in reports[0]}
        columns["loss"] = np.stack(jax.device_get(losses)).mean(1)
        jax.block_until_ready(self.run)
        return columns

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
        worlds = jax.tree.map(lambda x: x[None], self.worlds.place()) if hasattr(self.worlds, "place") else ()
        counters = Counters(jnp.int32(self.tick), Cursor(jnp.int32(head), jnp.int32(size)))
        return counters, self.program.from_rows(self.run._replace(worlds=worlds))

    def from_program(self, counters: Counters, run: TrainState) -> None:
        """The inverse of `to_program`: load a program's state."""
        self.tick = int(counters.tick)
        self.rows = self.tick * self.config.steps_per_tick
        worlds, self.run = run.worlds, self.program.as_rows(run)._replace(worlds=())
        if worlds:
            self.worlds.go_to(jax.tree.map(lambda x: x[0], worlds), self.rows)
            self.score.total, self.score.steps = (np.array(column).ravel() for column in run.score)

    def _send(self, actions: Array) -> Array:
        """Start a step, once the device has chosen the actions. Returns those that are taken: envs may force some."""
        chosen = np.asarray(actions) if self.program.spec.agents else np.asarray(actions)[0]  # [A, N] or [N]
        taken = with_forced(self.worlds, chosen)
        self.worlds.send(taken)
        return actions if taken is chosen else taken[None]

    def close(self) -> None:
        """Close the envs."""
        self.worlds.close()


def _begin(program: Program, key: jax.Array, frames: jax.Array) -> TrainState:
    """The initial states of all agents, leaves [A, …]; [1, …] for a single agent."""
    if program.spec.agents:
        return jax.vmap(program.begin)(keys.of_agents(key, program.num_agents), frames)
    return jax.tree.map(lambda x: x[None], program.begin(key, frames))


def pack(answer: Step) -> tuple[np.ndarray, np.ndarray]:
    """Frames, and the rest as one float32 array [N, 4] or [A, N, 4]: every array costs a transfer."""
    return np.ascontiguousarray(answer.frame), np.stack(answer[1:], axis=-1, dtype=np.float32)


def _choose(program: Program, run: TrainState, times: jax.Array) -> jax.Array:
    step = times[3]
    epsilon = program.epsilon(step // program.config.steps_per_tick)
    playing = run.acting()
    return over_seeds(
        lambda one: program.choose(one.agent, one.seen, program.draw_act(one.key, step), epsilon), playing
    )


def _remember(
    program: Program, times: jax.Array, run: TrainState, actions: jax.Array, frames: jax.Array, facts: jax.Array
) -> TrainState:
    answers = Step(frames, facts[..., 0], *(facts[..., i] > 0 for i in (1, 2, 3)))
    if not program.spec.agents:
        answers = jax.tree.map(lambda x: x[None], answers)
    # The replay memory is not mapped: see `Program.sample`.
    seen, *_ = over_seeds(lambda one: program.observe(*one), (run.acting(), actions, answers))
    return program.store_all(_counters(times).cursor, seen._replace(memory=run.memory, priorities=run.priorities))


def _remember_and_choose(
    program: Program, times: jax.Array, run: TrainState, actions: jax.Array, frames: jax.Array, facts: jax.Array
) -> tuple[TrainState, jax.Array]:
    run = _remember(program, times, run, actions, frames, facts)
    return run, _choose(program, run, times)


def _learn(program: Program, times: jax.Array, run: TrainState) -> tuple[TrainState, jax.Array]:
    counters = _counters(times)
    agent, priority_state, loss = program.learn(counters, run.agent, run.priorities, program.sample(counters, run))
    return run._replace(agent=agent, priorities=priority_state), loss


def _counters(times: jax.Array) -> Counters:
    return Counters(times[0], Cursor(times[1], times[2]))
