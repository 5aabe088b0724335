"""Time sorrel's own treasure hunt at our settings, for comparison.

    python benchmarks/sorrel_peer.py [--device cuda] [--batch 256] [--epsilon 0.63]

Needs Python 3.12 or newer with sorrel 1.6.0; prints one line of JSON. It uses the fastest of 1, 2, 4 … threads.
"""

import time

BEGUN = time.perf_counter()

import argparse
import json
import os
import sys
from importlib import metadata
from types import ModuleType

import numpy as np
import torch
from peer_facts import peak_memory_mb

# sorrel imports IPython for its notebooks; nothing here uses it, so it need not be installed.
for name in ("IPython", "IPython.display"):
    sys.modules.setdefault(name, ModuleType(name))
sys.modules["IPython.display"].clear_output = sys.modules["IPython.display"].display = print

from sorrel.action.action_spec import ActionSpec
from sorrel.examples.treasurehunt.agents import TreasurehuntAgent
from sorrel.examples.treasurehunt.entities import EmptyEntity
from sorrel.examples.treasurehunt.env import TreasurehuntEnv
from sorrel.examples.treasurehunt.world import TreasurehuntWorld
from sorrel.models.pytorch import PyTorchIQN
from sorrel.observation.observation_spec import OneHotObservationSpec

ENTITIES = ["EmptyEntity", "Wall", "Gem", "Bone", "Food", "TreasurehuntAgent"]
WORLD = {
    "height": 10,
    "width": 10,
    "gem_value": 10,
    "food_value": 5,
    "bone_value": -10,
    "spawn_prob": 0.02,
}
TURNS, AGENTS = 50, 5


class Hunt(TreasurehuntEnv):
    """sorrel's example with the number of agents and the learner's settings of xladder's default config."""

    def setup_agents(self):
        self.agents = []
        for seed in range(AGENTS):
            views = OneHotObservationSpec(ENTITIES, full_view=False, vision_radius=2)
            views.override_input_size((int(np.prod(views.input_size)),))
            actions = ActionSpec(["up", "down", "left", "right"])
            model = PyTorchIQN(
                input_size=views.input_size,
                action_space=actions.n_actions,
                layer_size=250,
                epsilon=self.config.model.epsilon,
                device=self.config.model.device,
                seed=seed,
                n_frames=5,
                batch_size=self.config.model.batch,
                memory_size=1024,
                LR=0.00025,
            )
            model.memory.extra_data["positions"] = np.zeros((model.memory.capacity, 2), dtype=np.int64)
            self.agents.append(TreasurehuntAgent(observation_spec=views, action_spec=actions, model=model))


def epoch(env, number):
    """One epoch as sorrel runs it, timed: (acting, learning) in seconds."""
    begun = time.perf_counter()
    env.reset()
    for agent in env.agents:
        agent.model.start_epoch_action(epoch=number)
    for _ in range(TURNS):
        env.take_turn()
    acted = time.perf_counter()
    for agent in env.agents:
        agent.model.train_step()
    return acted - begun, time.perf_counter() - acted


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epsilon", type=float, default=0.63)
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args()
    config = {
        "experiment": {"epochs": 1, "max_turns": TURNS, "record_period": 10**9},
        "model": {
            "agent_vision_radius": 2,
            "observation_spec": "onehot",
            "device": options.device,
            "batch": options.batch,
            "epsilon": options.epsilon,
        },
        "world": WORLD,
    }
    env = Hunt(TreasurehuntWorld(config=config, default_entity=EmptyEntity()), config)
    started = time.perf_counter() - BEGUN
    for number in range(8):
        epoch(env, number)  # fills the replay memory
    best = None
    threads = 1
    while threads <= len(os.sched_getaffinity(0)):
        torch.set_num_threads(threads)
        times = np.array([epoch(env, number + 1) for number in range(options.epochs)])
        acting, learning = np.median(times, axis=0)
        total = float(np.median(times.sum(1)))
        if best is None or total < best["seconds_per_epoch"]:
            best = {
                "peer": f"sorrel {metadata.version('sorrel')}",
                "device": options.device,
                "batch": options.batch,
                "epsilon": options.epsilon,
                "threads": threads,
                "seconds_per_epoch": total,
                "acting": float(acting),
                "learning": float(learning),
                "torch": torch.__version__,
            }
        threads *= 2
    print(json.dumps(best | {"start_seconds": started, "peak_memory_mb": peak_memory_mb()}))


if __name__ == "__main__":
    main()
