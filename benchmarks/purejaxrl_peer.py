"""Train PureJaxRL's DQN on CartPole at its own settings, for comparison. Prints one line of JSON.

    git clone https://github.com/luchris429/purejaxrl /tmp/purejaxrl && pip install flashbax gymnax
    python benchmarks/purejaxrl_peer.py /tmp/purejaxrl/purejaxrl/dqn.py [--seeds 128] [--steps 500000] [--repeats 2]

Its `make_train` is used unchanged; the settings are those of its `main`. Nothing is logged (its `WANDB_MODE` is
disabled by default), so that `wandb`, which the file imports, need not be installed. What newer versions changed is
put back: `jax.tree_map`, and the one flag for the end of an episode where gymnax 1 has two.
"""

import time

BEGUN = time.perf_counter()

import argparse
import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import jax

SETTINGS = {
    "NUM_ENVS": 10,
    "BUFFER_SIZE": 10_000,
    "BUFFER_BATCH_SIZE": 128,
    "EPSILON_START": 1.0,
    "EPSILON_FINISH": 0.05,
    "TARGET_UPDATE_INTERVAL": 500,
    "LR": 2.5e-4,
    "LEARNING_STARTS": 10_000,
    "TRAINING_INTERVAL": 10,
    "LR_LINEAR_DECAY": False,
    "GAMMA": 0.99,
    "TAU": 1.0,
    "ENV_NAME": "CartPole-v1",
    "WANDB_MODE": "disabled",
}


def load(file: Path) -> ModuleType:
    """PureJaxRL's file as a module."""
    sys.modules.setdefault("wandb", ModuleType("wandb"))
    if not hasattr(jax, "tree_map"):
        jax.tree_map = jax.tree.map
    restore_done_flag()
    spec = spec_from_file_location("purejaxrl_dqn", file)
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def restore_done_flag() -> None:
    """Let gymnax's `LogWrapper` return five values, as before version 1."""
    from gymnax.wrappers.purerl import LogWrapper

    step = LogWrapper.step

    def with_one_flag(self, *arguments):
        found = step(self, *arguments)
        if len(found) == 5:
            return found
        obs, state, reward, terminated, truncated, info = found
        return obs, state, reward, terminated | truncated, info

    LogWrapper.step = with_one_flag


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=2, help="runs of the compiled program; the fastest counts")
    options = parser.parse_args()
    config = SETTINGS | {"TOTAL_TIMESTEPS": options.steps, "EPSILON_ANNEAL_TIME": options.steps / 2}
    train = jax.jit(jax.vmap(load(options.file).make_train(config)))
    keys = jax.random.split(jax.random.PRNGKey(0), options.seeds)
    begun = time.perf_counter()
    program = train.lower(keys).compile()
    compiled = time.perf_counter()
    seconds = []
    for _ in range(options.repeats):
        start = time.perf_counter()
        found = jax.block_until_ready(program(keys))
        seconds.append(time.perf_counter() - start)
    returns = found["metrics"]["returns"]
    tenth = max(1, returns.shape[1] // 10)
    row = {
        "compile_seconds": compiled - begun,
        "start_seconds": begun - BEGUN,
        "whole_seconds": compiled - BEGUN + seconds[0],
        "train_seconds": min(seconds),
        "steps_per_second": options.seeds * options.steps / min(seconds),
        "return": float(returns[:, -tenth:].mean()),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
