"""A workload small enough to compile at once, with a fault in it: what debugging has to find."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from xladder.protocols import Family


class Counters(NamedTuple):
    tick: jax.Array


class Run(NamedTuple):
    key: jax.Array
    weights: jax.Array


class Metrics(NamedTuple):
    returns: jax.Array
    loss: jax.Array


class World:
    jittable = True


class StandinFamily(Family):
    def program_for(self, config, platform, seeds=()):
        return Program(config)


@dataclass(frozen=True)
class Config:
    family: ClassVar[Family] = StandinFamily()
    world: ClassVar[World] = World()
    fault: str = ""


@dataclass(frozen=True)
class Program:
    config: Config

    def init_counters(self):
        return Counters(jnp.int32(0))

    def init(self, seed):
        return Run(jax.random.key(seed), jnp.ones(3))

    def params(self, runs):
        return {"weights": runs.weights}

    def tick(self, counters, runs):
        fault, tick = self.config.fault, counters.tick
        key = jax.random.fold_in(runs.key[0], tick)
        noise = jax.random.normal(key, (3,))
        if fault == "key":
            noise = noise + jax.random.normal(key, (3,))
        if fault == "python" and tick == 2:  # a branch on a value, which only Python without `jit` can take
            raise RuntimeError("reached in Python")
        place = jnp.where(tick == 2, 7, 1) if fault == "index" else 1
        weights = runs.weights.at[0, place].add(0.1) + noise[None]
        if fault == "nan":
            weights = take_log(jnp.where(tick == 2, -1.0, jnp.abs(weights) + 1.0))
        loss = jnp.where(tick < 1, jnp.nan, weights.sum(1))  # nothing was learned at first
        return Counters(tick + 1), runs._replace(weights=weights), Metrics(weights.mean(1), loss)


def take_log(values):
    return jnp.log(values)
