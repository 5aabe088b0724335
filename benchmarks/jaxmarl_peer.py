"""Train JaxMARL's VDN in one of its worlds, at its own settings. Prints one line of JSON.

    git clone https://github.com/FLAIROx/JaxMARL /tmp/JaxMARL && pip install jaxmarl flashbax
    python benchmarks/jaxmarl_peer.py /tmp/JaxMARL/baselines/QLearning/vdn_rnn.py [--world MPE_simple_spread_v3]

The file's `make_train` is used unchanged. The settings are those of `config/alg/ql_rnn_mpe.yaml`, with its greedy
episodes every twentieth of a run. It gives their returns to `wandb` only, by a callback in each update, which is off
here: they are read from the state that its outer loop carries.
"""

import time

BEGUN = time.perf_counter()

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import jax
import numpy as np
from peer_scripts import load

PARTS = 20  # greedy episodes are played after each
VDN = {
    "NUM_ENVS": 8,
    "NUM_STEPS": 26,
    "BUFFER_SIZE": 5000,
    "BUFFER_BATCH_SIZE": 32,
    "HIDDEN_SIZE": 64,
    "EPS_START": 1.0,
    "EPS_FINISH": 0.05,
    "EPS_DECAY": 0.1,
    "MAX_GRAD_NORM": 25,
    "TARGET_UPDATE_INTERVAL": 200,
    "TAU": 1.0,
    "NUM_EPOCHS": 1,
    "LR": 0.005,
    "LEARNING_STARTS": 10_000,
    "LR_LINEAR_DECAY": True,
    "GAMMA": 0.9,
    "TEST_DURING_TRAINING": True,
    "TEST_INTERVAL": 1 / PARTS,
    "TEST_NUM_STEPS": 30,
    "TEST_NUM_ENVS": 512,
    "WANDB_MODE": "disabled",
    "ENV_KWARGS": {},
}
RETURN = "returned_episode_returns"


def recording(updates: int) -> Callable:
    """`jax.lax.scan`, which in the loop over so many updates also keeps the returns of the latest greedy episodes."""
    scan = jax.lax.scan

    def scan_and_keep(body, carry, xs=None, length=None, **options):
        if xs is not None or length != updates:
            return scan(body, carry, xs, length, **options)

        def body_and_returns(carry, x):
            after, _ = body(carry, x)
            return after, after[2][RETURN]

        return scan(body_and_returns, carry, None, length)

    return scan_and_keep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--world", default="MPE_simple_spread_v3")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0, help="of the key that the seeds' keys are split from")
    parser.add_argument("--steps", type=int, default=10**7)
    parser.add_argument("--constant-lr", action="store_true", help="the learning rate does not fall")
    options = parser.parse_args()
    config = VDN | {"TOTAL_TIMESTEPS": options.steps, "ENV_NAME": options.world}
    config["LR_LINEAR_DECAY"] = not options.constant_lr
    updates = options.steps // config["NUM_STEPS"] // config["NUM_ENVS"]
    # The returns after a part are in the state from its last update on.
    after = np.array([(part + 1) * int(updates / PARTS) for part in range(PARTS)])
    module = load(options.file)
    keys = jax.random.split(jax.random.PRNGKey(options.seed), options.seeds)
    with contextlib.redirect_stdout(sys.stderr), patch.object(jax.lax, "scan", recording(updates)):  # it prints
        train = jax.jit(jax.vmap(module.make_train(config, module.env_from_config(config)[0])))
        begun = time.perf_counter()
        program = train.lower(keys).compile()
    compiled = time.perf_counter()
    returns = np.asarray(program(keys)["metrics"])
    each = returns[:, after - 1]
    row = {
        "env_steps": updates * config["NUM_STEPS"] * config["NUM_ENVS"],
        "per_seed": each[:, -1].tolist(),
        "greedy_curve": {
            "env_steps": (after * config["NUM_STEPS"] * config["NUM_ENVS"]).tolist(),
            "return": each.tolist(),
        },
        "compile_seconds": compiled - begun,
        "train_seconds": time.perf_counter() - compiled,
        "whole_seconds": time.perf_counter() - BEGUN,
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
