"""Real sorrel, three of its worlds, both models, one table. Needs Python 3.12 and `pip install sorrel==1.6.*`.

The changed line of an experiment is its import: `from xladder.sorrel import JaxIQN as PyTorchIQN`. Here both models run
in one process, so the name is replaced in the module of each example instead.
"""

import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from omegaconf import OmegaConf
from sorrel.entities.basic_entities import EmptyEntity
from sorrel.examples.cleanup import env as cleanup
from sorrel.examples.cleanup.entities import EmptyEntity as CleanupEmpty
from sorrel.examples.cleanup.world import CleanupWorld
from sorrel.examples.tag import env as tag
from sorrel.examples.treasurehunt import env as hunt
from sorrel.examples.treasurehunt.entities import EmptyEntity as HuntEmpty
from sorrel.examples.treasurehunt.world import TreasurehuntWorld
from sorrel.models.pytorch import PyTorchIQN
from sorrel.worlds import Gridworld

from xladder.sorrel import JaxIQN

EPOCHS, WARM_UP = 5, 8  # the first epochs fill the replay memory and compile
HUNT = {
    "experiment": {"max_turns": 50},
    "model": {"agent_vision_radius": 2, "num_agents": 3},
    "world": {"height": 12, "width": 12, "gem_value": 10, "food_value": 5, "bone_value": -10, "spawn_prob": 0.02},
}
TAG = {
    "experiment": {"max_turns": 20},
    "agent": {"num_agents": 5, "vision_radius": 4},
    "world": {"height": 11, "width": 11, "layers": 1},
}


def make_hunt():
    """Treasure hunt with three agents."""
    return hunt.TreasurehuntEnv(TreasurehuntWorld(config=HUNT, default_entity=HuntEmpty()), HUNT)


def make_tag():
    """Tag as sorrel ships it."""
    return tag.TagEnv(Gridworld(**TAG["world"], default_entity=EmptyEntity()), TAG)


def make_cleanup():
    """Cleanup with three agents and short epochs."""
    config = OmegaConf.load(Path(cleanup.__file__).parent / "configs" / "config.yaml")
    config.agent.agent.num, config.experiment.max_turns = 3, 30
    return cleanup.CleanupEnv(CleanupWorld(config=config, default_entity=CleanupEmpty()), config)


def epoch(env, number):
    """One epoch of sorrel's loop: (milliseconds on all cores, reward of all agents, loss of all agents)."""
    begun = time.process_time()
    env.reset()
    for agent in env.agents:
        agent.model.start_epoch_action(epoch=number)
    while env.turn < env.config.experiment.max_turns:
        env.take_turn(number)
    env.world.is_done = True
    for agent in env.agents:
        agent.model.end_epoch_action(epoch=number)
    loss = sum(agent.model.train_step() for agent in env.agents)
    return 1000 * (time.process_time() - begun), env.world.total_reward, float(loss)


def main():
    """Run every world with both models."""
    torch.set_num_threads(1)
    print(f"{'world':14}{'model':12}{'ms per epoch':>14}{'reward':>9}{'loss':>8}")
    for name, module, make in (
        ("treasurehunt", hunt, make_hunt),
        ("tag", tag, make_tag),
        ("cleanup", cleanup, make_cleanup),
    ):
        for model in (PyTorchIQN, JaxIQN):
            np.random.seed(0)
            module.PyTorchIQN = model
            env = make()
            rows = [epoch(env, number) for number in range(WARM_UP + EPOCHS)][WARM_UP:]
            time_, reward, loss = (median(column) for column in zip(*rows, strict=True))
            label = "PyTorchIQN" if model is PyTorchIQN else "JaxIQN"
            print(f"{name:14}{label:12}{time_:14.0f}{reward:9.1f}{loss:8.3f}", flush=True)


if __name__ == "__main__":
    main()
