"""Run directories of agents that have not learned: all that moving them about needs, without the time to train."""

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
