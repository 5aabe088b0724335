"""Train PureJaxRL's DQN on CartPole, or PureJaxQL's PQN on MinAtar, at its own settings. Prints one line of JSON.

    git clone https://github.com/luchris429/purejaxrl /tmp/purejaxrl && pip install flashbax gymnax
    python benchmarks/purejax_peer.py dqn /tmp/purejaxrl/purejaxrl/dqn.py [--seeds 128] [--steps 500000] [--repeats 2]
    git clone https://github.com/mttga/purejaxql /tmp/purejaxql
    python benchmarks/purejax_peer.py pqn /tmp/purejaxql/purejaxql/pqn_minatar.py [--world Breakout-MinAtar]

Both are files with a `make_train`, which is used unchanged. The settings are those of PureJaxRL's `main` and of
PureJaxQL's `config/alg/pqn_minatar.yaml`. Nothing is logged, and PQN's evaluations while training are off, so `wandb`,
`hydra` and `omegaconf`, which the files import, need not be installed. What newer versions changed is put back:
`jax.tree_map`, and the one flag for the end of an episode where gymnax 1 has two.
"""

import time

BEGUN = time.perf_counter()

import argparse
import json
from pathlib import Path

import jax
from peer_facts import peak_memory_mb
from peer_scripts import load

DQN = {
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
PQN = {
    "NUM_ENVS": 128,
    "NUM_STEPS": 32,
    "EPS_START": 1.0,
    "EPS_FINISH": 0.05,
    "EPS_DECAY": 0.1,
    "NUM_MINIBATCHES": 32,
    "NUM_EPOCHS": 2,
    "NORM_TYPE": "layer_norm",
    "LR": 0.0005,
    "MAX_GRAD_NORM": 10,
    "LR_LINEAR_DECAY": True,
    "GAMMA": 0.99,
    "LAMBDA": 0.65,
    "TEST_DURING_TRAINING": False,
    "WANDB_MODE": "disabled",
}
# For each kind: the steps of a run, and the name of the mean return of finished episodes.
KINDS = {"dqn": (500_000, "returns"), "pqn": (10_000_000, "returned_episode_returns")}


def settings(kind: str, steps: int, world: str) -> dict:
    """The peer's settings for a run of so many steps."""
    if kind == "dqn":
        return DQN | {"TOTAL_TIMESTEPS": steps, "EPSILON_ANNEAL_TIME": steps / 2}
    return PQN | {"TOTAL_TIMESTEPS": steps, "TOTAL_TIMESTEPS_DECAY": steps, "ENV_NAME": world}


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--world", default="Breakout-MinAtar", help="gymnax's id, for PQN")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--repeats", type=int, default=2, help="runs of the compiled program; the fastest counts")
    options = parser.parse_args()
    steps, column = KINDS[options.kind]
    steps = options.steps or steps
    config = settings(options.kind, steps, options.world)
    restore_done_flag()
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
    returns = found["metrics"][column]
    tenth = max(1, returns.shape[1] // 10)
    row = {
        "compile_seconds": compiled - begun,
        "start_seconds": begun - BEGUN,
        "whole_seconds": compiled - BEGUN + seconds[0],
        "train_seconds": min(seconds),
        "steps": steps,
        "steps_per_second": options.seeds * steps / min(seconds),
        "return": float(returns[:, -tenth:].mean()),
        "peak_memory_mb": peak_memory_mb(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
