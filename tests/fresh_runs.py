"""Run directories of agents that have not learned: all that moving them about needs, without the time to train."""

import hashlib
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xladder.core import keys
from xladder.plans import plan
from xladder.results import Result
from xladder.runs.directory import RunDirectory
from xladder.runs.loading import load


def make(folder: Path, workload: str, config: Any, seeds: int = 1, seed: int = 0) -> Result:
    """A run of fresh agents in `folder`, as it is loaded again."""
    made = plan(workload, config=config, seed=seed, seeds=seeds)
    program = config.family.program(config)

    def begin(seed):
        if hasattr(program, "init_params"):
            return program.init_params(keys.root(seed))
        return program.params(jax.tree.map(lambda x: x[None], program.init(seed)))

    each = [jax.tree.map(np.asarray, jax.jit(begin)(np.int32(number))) for number in made.seeds]
    if not hasattr(program, "init_params"):  # these have the axis of seeds already
        each = [jax.tree.map(lambda x: x[0], one) for one in each]
    # Parameters that begin at nought, as log Z does, would hide what is mixed up.
    params = jax.tree.map(lambda *leaves: np.stack(leaves) + np.float32(0.01), *each)
    RunDirectory.create(folder, made).save_agents(params)
    return load(folder)


def facts(table: bytes, done: int) -> dict[str, Any]:
    """What a checkpoint says of a run besides its arrays, after so many ticks with this table of metrics."""
    return {
        "rung": "fused",
        "group": 0,
        "done": done,
        "ticks": 20,
        "compile_seconds": 0.0,
        "tick_seconds": 0.1,
        "snapshots": [],
        "metrics_bytes": len(table),
        "metrics_sha256": hashlib.sha256(table).hexdigest(),
        "elapsed_seconds": 1.0,
    }
