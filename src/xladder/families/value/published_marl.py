"""The published agents in JaxMARL's particle worlds (MPE): VDN as JaxMARL's own baseline has it."""

from __future__ import annotations

from xladder.families.value.published import PublishedAgent

ENVS, STEPS = 8, 26
PER_UPDATE = ENVS * STEPS  # environment steps between updates

MPE = (
    PublishedAgent(
        "vdn",
        "jaxmarl",
        "FLAIROx/JaxMARL: baselines/QLearning/vdn_rnn.py, config/alg/ql_rnn_mpe.yaml (Sunehag et al. 2018)",
        {
            "world.num_envs": (ENVS, "NUM_ENVS 8"),
            "world.team": (True, "vdn_target: sum over agents; rewards __all__: their sum"),
            "world.shared": (True, "one RNNQNetwork, with the agents' one-hot numbers"),
            "learner.torso": ("mlp", "Dense"),
            "learner.hidden": ((64,), "HIDDEN_SIZE 64"),
            "learner.recurrent": (64, "GRUCell, HIDDEN_SIZE 64"),
            "learner.width": (64, "HIDDEN_SIZE 64"),
            "learner.burn_in": (0, "from the first step of an episode"),
            "learner.sequence": (STEPS - 1, "NUM_STEPS 26: an episode"),
            "learner.head": ("scalar", "q_vals"),
            "learner.double": (True, "argmax of q_vals, values of q_next_target"),
            "learner.n_step": (1, "one step"),
            "learner.prioritised": (False, "make_trajectory_buffer: uniform"),
            "learner.loss": ("squared", "mean of squares"),
            "learner.optimiser": ("radam", "optax.radam"),
            "learner.optimiser_eps": (1e-8, "RAdam's default"),
            "learner.lr": (0.005, "LR 0.005"),
            "learner.clip": (25.0, "MAX_GRAD_NORM 25"),
            "learner.gamma": (0.9, "GAMMA 0.9"),
            "learner.batch_size": (32, "BUFFER_BATCH_SIZE 32"),
            "learner.memory": (5000 * STEPS, "BUFFER_SIZE 5000 episodes of NUM_STEPS 26"),
            "learner.learning_starts": (10_000, "LEARNING_STARTS 10000"),
            "learner.steps_per_update": (PER_UPDATE, "NUM_ENVS 8 · NUM_STEPS 26, NUM_EPOCHS 1"),
            "learner.target_update_period": (200 * PER_UPDATE, "TARGET_UPDATE_INTERVAL 200 updates"),
            "learner.tau": (0.0, "TAU 1: a copy"),
            "learner.epsilon": (1.0, "EPS_START 1.0"),
            "learner.epsilon_end": (0.05, "EPS_FINISH 0.05"),
            "learner.epsilon_share": (0.1, "EPS_DECAY 0.1"),
            "steps": (10**7 // PER_UPDATE * PER_UPDATE, "TOTAL_TIMESTEPS 1e7, whole rollouts of 208"),
            "evaluate_epsilon": (0.0, "greedy"),
        },
        (
            "The learning rate stays; theirs falls linearly to 0 (LR_LINEAR_DECAY).",
            "A hidden layer of 64 units comes between the GRU and the values; theirs has none.",
            "Sequences begin anywhere, with the state that was stored when acting; theirs are whole episodes.",
            "Initial weights are uniform in ±1/√inputs; theirs are orthogonal.",
        ),
    ),
)
