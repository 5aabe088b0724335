"""`fused`: a chunk of many ticks is one XLA program, for a whole population of seeds at once.

The host is involved once per chunk. The number of ticks is an argument of the program, so one compilation serves every
length, and a run stops exactly where it should.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import dynamic_update_index_in_dim
from jax.sharding import Sharding, SingleDeviceSharding

from xladder.core import words
from xladder.core.compiling import options_for
from xladder.protocols import Config
from xladder.rungs.parallel import SAMPLED_TICKS
from xladder.rungs.program_run import ProgramRun
from xladder.rungs.running import USUAL, Compiler, Metrics, the_rest, timed

LONGEST_CHUNK = 256


class FusedRun(ProgramRun):
    """A population of runs, one per seed, advanced in chunks."""

    ahead = True
    """Whether programs are dispatched before the metrics of those before them are fetched: the device never waits."""

    def __init__(
        self,
        config: Config,
        seeds: Sequence[int],
        device: Any,
        compiler: Compiler = USUAL,
        hyperparams: Any = None,
    ):
        self.seeds, self.device = tuple(seeds), device
        self.program = program = self.make_program(config)

        def init(seeds: jax.Array, hyperparams: Any) -> tuple[Any, Any]:
            runs = jax.vmap(program.init)(seeds)
            if hyperparams is not None:
                runs = program.with_hyperparams(runs, hyperparams)
            return program.init_counters(), runs

        def chunk(counters: Any, runs: Any, ticks: jax.Array) -> tuple[Any, Any, Any]:
            row = jax.eval_shape(program.tick, counters, runs)[2]
            rows = jnp.zeros((LONGEST_CHUNK, words.width(row)), jnp.int32)

            def body(i: jax.Array, carry: tuple) -> tuple:
                counters, runs, rows = carry
                counters, runs, row = program.tick(counters, runs)
                return counters, runs, dynamic_update_index_in_dim(rows, words.pack(row), i, 0)

            counters, runs, rows = jax.lax.fori_loop(0, ticks, body, (counters, runs, rows))
            return counters, runs, words.unpack(rows, row)

        with jax.default_device(device), ThreadPoolExecutor(1) as thread:
            given = np.asarray(seeds, np.int32), hyperparams
            shardings = self.shardings(init, *given)
            self._init = jax.jit(init, out_shardings=shardings, compiler_options=options_for(device.platform))
            state = jax.tree.map(_placed, self._init.eval_shape(*given), shardings)
            # Compiling one takes as long as compiling the other, and neither needs what the other computes.
            beginning = thread.submit(self.begin, seeds, hyperparams)
            begun = time.perf_counter()
            self.chunk = compiler.program(self.spread(chunk), (0, 1), *state, np.int32(0))
            self.compile_seconds = time.perf_counter() - begun
            beginning.result()

    def begin(self, seeds: Sequence[int], hyperparams: Any = None) -> None:
        """Start afresh with as many seeds, without compiling again.

        Args:
            seeds: The seeds.
            hyperparams: The hyperparameters of each, leaves [S], if they differ; those of the config if not given.
        """
        self.seeds = tuple(seeds)
        with jax.default_device(self.device):
            self.counters, self.runs = self._init(np.asarray(seeds, np.int32), hyperparams)

    # The `mesh` rung overrides these, to shard the same chunk over several devices.

    def make_program(self, config: Config) -> Any:
        """The workload's program for this device."""
        return config.family.program_for(config, self.device.platform, self.seeds)

    def shardings(self, init: Callable[..., Any], seeds: np.ndarray, hyperparams: Any) -> tuple[Any, Any]:
        """Where the counters and the population lie."""
        place = SingleDeviceSharding(self.device)
        found: tuple[Any, Any] = jax.tree.map(lambda _: place, jax.eval_shape(init, seeds, hyperparams))
        return found

    def spread(self, chunk: Callable[..., Any]) -> Callable[..., Any]:
        """Shard a function of counters, population and number of ticks."""
        return chunk

    def spread_sampling(self, sample: Callable[..., Any]) -> Callable[..., Any]:
        """Shard a function of counters and population that returns one number."""
        return sample

    def everywhere(self, value: np.generic) -> jax.Array:
        """Copy a scalar to all devices."""
        return jax.device_put(value, self.device)

    def fetch(self, tree: Any) -> Any:
        """Copy arrays from the device to the host."""
        return jax.device_get(tree)

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly this many ticks."""
        counts = [min(LONGEST_CHUNK, ticks - begin) for begin in range(0, ticks, LONGEST_CHUNK)]
        reported = []
        for count in counts:
            self.counters, self.runs, rows = self.chunk(self.counters, self.runs, self.everywhere(np.int32(count)))
            reported.append(rows if self.ahead else self.fetch(rows))
        parts = []
        for count, rows in zip(counts, map(self.fetch, reported) if self.ahead else reported, strict=True):
            columns = rows._asdict()
            parts.append({name: np.moveaxis(values[:count], 0, 1) for name, values in columns.items()})
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}

    def phases(self) -> dict[str, float]:
        """Median seconds per tick and seed: sampling is timed as its own program, the update is the rest of a tick."""

        def sample(counters: Any, runs: Any) -> jax.Array:
            def body(i: jax.Array, total: jax.Array) -> jax.Array:
                sampled = self.program.rollout_only(counters._replace(tick=counters.tick + i), runs)
                # Use all outputs, so that none is optimised away, and so that the next iteration waits for this one.
                return total + sum(jnp.sum(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(sampled))

            return jax.lax.fori_loop(0, SAMPLED_TICKS, body, jnp.float32(0))

        program = jax.jit(self.spread_sampling(sample))
        sampling = timed(lambda: program(self.counters, self.runs).block_until_ready())
        whole = timed(lambda: self.advance(SAMPLED_TICKS))
        each = SAMPLED_TICKS * len(self.seeds)
        return {"sampling": sampling / each, "update": the_rest(whole, sampling) / each}


def _placed(leaf: jax.ShapeDtypeStruct, sharding: Sharding) -> jax.ShapeDtypeStruct:
    """An array that will have this shape and lie there."""
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)


def start(
    config: Config,
    seeds: Sequence[int],
    device: Any = None,
    compiler: Compiler = USUAL,
    hyperparams: Any = None,
) -> FusedRun:
    """Start a population of runs, one per seed; with `hyperparams`, leaves [S], each has its own."""
    return FusedRun(config, seeds, device or jax.devices()[0], compiler, hyperparams)
