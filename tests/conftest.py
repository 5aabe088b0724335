"""What all tests share. The environment is set here, before JAX is imported, and child processes inherit it."""

import atexit
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    # One cache for all workers and for the commands that tests start, which inherit its name: most programs are
    # compiled once. Only the process that made it takes it away.
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="xladder-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
    # The user's own cache of compiled programs stays out of it.
    os.environ["XDG_CACHE_HOME"] = os.environ["JAX_COMPILATION_CACHE_DIR"]
# Programs are run a few times here, so compiling them is what takes long; this saves a third of all testing time.
# `make test` adds a flag that saves two fifths of the rest, but changes the last bits of some programs.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
os.environ.update(
    PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # as in an activated environment
    JAX_PLATFORMS="cpu",
    JAX_NUM_CPU_DEVICES="8",
    JAX_NUMPY_RANK_PROMOTION="raise",
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
    OMP_WAIT_POLICY="PASSIVE",  # threads of PyTorch that wait leave the core to the other worker
)

import jax
import numpy as np
import pytest
import torch

from xladder.families.gflownet import bits_presets, dags_presets, ising_presets, own_presets, sets_presets
from xladder.families.gflownet import hypergrid_presets as hypergrid
from xladder.families.gflownet.config import LearnerConfig as FlowLearnerConfig
from xladder.families.multi_agent.config import LearnerConfig
from xladder.families.multi_agent.treasurehunt_presets import Config, WorldConfig
from xladder.families.value import atari_presets as atari
from xladder.families.value import gym_presets as gym
from xladder.families.value import gymnax_presets as gymnax
from xladder.rungs import torch as torch_rung

torch.set_num_threads(1)


TINY = Config(
    world=WorldConfig(height=6, width=6, num_agents=2, radius=1, max_turns=8, spawn_prob=0.1),
    learner=LearnerConfig(
        width=16,
        cosines=8,
        quantiles=4,
        act_quantiles=4,
        batch_size=8,
        memory=40,
        n_frames=3,
        epsilon=0.5,
        target_update_period=3,
    ),
    epochs=10,
)
TINY_GRID = hypergrid.Config(
    world=hypergrid.WorldConfig(dim=2, side=5),
    learner=FlowLearnerConfig(
        batch_size=6,
        width=16,
        memory=8,
        epsilon=0.3,
        epsilon_end=0.1,
        temperature=1.5,
        explore_until=0.15,
    ),
    loss="tb",
    iterations=20,
)
TINY_BITS = own_presets.Config(own_presets.WorldConfig("flow/bits"), TINY_GRID.learner, iterations=20)
TINY_SEQUENCES = bits_presets.Config(
    bits_presets.WorldConfig(bits=6, word=2, modes=3), TINY_GRID.learner, iterations=20
)
TINY_GRAPHS = dags_presets.Config(dags_presets.WorldConfig(nodes=3, samples=20), TINY_GRID.learner, iterations=20)
TINY_ISING = ising_presets.Config(ising_presets.WorldConfig(side=2), TINY_GRID.learner, iterations=20)
TINY_SETS = sets_presets.Config(sets_presets.WorldConfig(items=4, most=2), TINY_GRID.learner, iterations=20)


TINY_VALUES = replace(
    gymnax.VECTORS.learner,
    hidden=(16,),
    width=16,
    batch_size=8,
    memory=64,
    learning_starts=8,
    target_update_period=12,
    tau=0.0,
    n_step=3,
)
TINY_CART = gymnax.Config(
    world=gymnax.WorldConfig(num_envs=4),
    learner=replace(TINY_VALUES, steps_per_update=2),
    steps=160,
    evaluate_episodes=2,
)
TINY_GYM = gym.Config(
    world=gym.WorldConfig(num_envs=2), learner=replace(TINY_VALUES, steps_per_update=4), steps=80, evaluate_episodes=0
)
TINY_ATARI = replace(
    atari.PROTOCOLS["cleanrl"],
    world=replace(atari.PROTOCOLS["cleanrl"].world, num_envs=2, threads=2),
    learner=replace(atari.PROTOCOLS["cleanrl"].learner, width=16, batch_size=4, memory=64, learning_starts=16),
    frames=640,
    evaluate_episodes=0,
)


@pytest.fixture(autouse=True, scope="session")
def one_core():
    """The rungs with PyTorch try one thread only: trying two takes seconds where both cores are busy with tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_rung, "cores", lambda: 1)
        yield


@pytest.fixture
def tiny() -> Config:
    """Small enough to compile in a moment. Agents both explore and choose, and a hard update comes soon."""
    return TINY


@pytest.fixture
def tiny_grid() -> hypergrid.Config:
    """Small enough to compile in a moment. It explores less for three iterations; a memory of it is full then."""
    return TINY_GRID


@pytest.fixture
def altered(tiny):
    """`altered(world={…}, learner={…})`: the tiny config with some fields changed."""

    def make(world=(), learner=()) -> Config:
        return replace(tiny, world=replace(tiny.world, **dict(world)), learner=replace(tiny.learner, **dict(learner)))

    return make


def assert_trees_equal(ours, theirs):
    """Same structure, same bits."""
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def assert_trees_close(ours, theirs, atol):
    """Same structure, and no leaf further away than `atol`."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), ours, theirs)
