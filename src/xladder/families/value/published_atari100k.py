"""The published agents of Atari-100k (Kaiser et al. 2020): 100,000 agent steps, 400,000 frames, of every game.

DER is Rainbow with the settings of van Hasselt et al. 2019 ("When to use parametric models in reinforcement
learning?"), as Dopamine has them. The paper's own network is smaller, two convolutions of 5 × 5 with stride 5 and 256
units, and its returns span 20 steps; Dopamine keeps Rainbow's network and takes 10 steps, after Schwarzer et al. 2021.
"""

from __future__ import annotations

from dataclasses import replace

from xladder.families.value.published_atari import AGENTS as LONG
from xladder.families.value.published_atari import DOPAMINE_RAINBOW

DER = replace(
    DOPAMINE_RAINBOW,
    algorithm="der",
    protocol="atari100k",
    source="google/dopamine: dopamine/labs/atari_100k/configs/DER.gin",
    table={
        **DOPAMINE_RAINBOW.table,
        "protocol": ("atari100k", ""),
        "world.num_envs": (1, "one environment"),
        "world.sticky": (0.0, "sticky_actions False"),
        "world.life_loss": (True, "terminal_on_life_loss True"),
        "learner.n_step": (10, "update_horizon 10"),
        "learner.lr": (0.0001, "learning_rate 0.0001"),
        "learner.optimiser_eps": (0.00015, "eps 0.00015"),
        "learner.memory": (100_000, "replay_capacity 1000000, more than the run has"),
        "learner.learning_starts": (1600, "min_replay_history 1600"),
        "learner.steps_per_update": (1, "update_period 1"),
        "learner.target_update_period": (2000, "target_update_period 2000"),
        "learner.epsilon": (1.0, "linearly_decaying_epsilon"),
        "learner.epsilon_end": (0.01, "epsilon_train 0.01"),
        "learner.epsilon_steps": (2000, "epsilon_decay_period 2000"),
        "learner.explore_from": (1600, "epsilon decays after min_replay_history"),
        "frames": (400_000, "num_iterations 10 · training_steps 10000"),
        "evaluate_epsilon": (0.001, "epsilon_eval 0.001"),
    },
    differences=(
        "Every layer draws its own noise; their layers share a key.",
        "The paper has a smaller network and 20-step returns; these are Dopamine's.",
    ),
)
AGENTS = (*LONG, DER)
