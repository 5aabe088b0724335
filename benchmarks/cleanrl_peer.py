"""Run CleanRL's `dqn_jax.py` on CartPole at its own settings, for comparison. Prints one line of JSON.

    git clone https://github.com/vwxyzjn/cleanrl /tmp/cleanrl && pip install jax flax optax tyro torch gymnasium
    python benchmarks/cleanrl_peer.py /tmp/cleanrl [--steps 500000]

The script itself is run, unchanged. Its TensorBoard writer is replaced by one that keeps returns and writes nothing.
What newer versions of Gymnasium changed is put back: the episode that ended is told by `final_info` and
`final_observation`, and the next one begins in the same step, as in version 0.29, for which the script was written.
"""

import time

BEGUN = time.perf_counter()

import argparse
import contextlib
import io
import json
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

import gymnasium
import jax
import numpy as np
from peer_facts import peak_memory_mb

STEPS = 500_000


class Writer:
    """Takes what is logged, and keeps returns and when each was reported."""

    returns: list[tuple[int, float]] = []  # noqa: RUF012 - the script makes one writer

    def __init__(self, *_):
        pass

    def add_scalar(self, name, value, step):
        if name == "charts/episodic_return":
            self.returns.append((step, float(np.mean(value))))

    def add_text(self, *_):
        pass

    def close(self):
        pass


def as_before(vector):
    """`SyncVectorEnv` with the infos of Gymnasium 0.29."""
    if not hasattr(gymnasium.vector, "AutoresetMode"):
        return vector  # that version itself

    class Before(vector):
        def __init__(self, makers):
            super().__init__(makers, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)

        def step(self, actions):
            obs, rewards, terminated, truncated, infos = super().step(actions)
            if "final_obs" in infos:
                ended = infos.pop("final_info")
                episodes = [{"r": r, "l": n} for r, n in zip(ended["episode"]["r"], ended["episode"]["l"], strict=True)]
                infos["final_info"] = [{"episode": episode} for episode in episodes]
                infos["final_observation"] = infos.pop("final_obs")
            return obs, rewards, terminated, truncated, infos

    return Before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a checkout of CleanRL")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    board = ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Writer
    sys.modules["torch.utils.tensorboard"] = board
    gymnasium.vector.SyncVectorEnv = as_before(gymnasium.vector.SyncVectorEnv)
    sys.path.insert(0, str(options.folder))
    script = options.folder / "cleanrl" / "dqn_jax.py"
    sys.argv = [str(script), "--total-timesteps", str(options.steps)]
    begun = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(str(script), run_name="__main__")
    seconds = time.perf_counter() - begun
    late = [value for step, value in Writer.returns if step >= 0.9 * options.steps]
    row = {
        "start_seconds": begun - BEGUN,
        "compile_seconds": None,  # small functions, compiled as they are met
        "train_seconds": seconds,
        "whole_seconds": time.perf_counter() - BEGUN,
        "steps": options.steps,
        "steps_per_second": options.steps / seconds,
        "return": float(np.mean(late)) if late else None,
        "peak_memory_mb": peak_memory_mb(),
        "jax": jax.__version__,
        "gymnasium": gymnasium.__version__,
        "device": jax.devices()[0].device_kind,
        "cores": len(os.sched_getaffinity(0)),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
