"""The published agents on Atari. Counts are in agent steps; the sources' units are beside them.

| protocol | rules and agents of | numbers from |
|---|---|---|
| `nature` | Mnih et al. 2015 and its successors at DeepMind | DQN Zoo, whose periods count frames |
| `dopamine` | Castro et al. 2018, after Machado et al. 2018 | Dopamine's gin files (JAX) |
| `cleanrl` | Huang et al. 2022 | CleanRL's scripts |
| `atari100k` | Kaiser et al. 2020: 100,000 agent steps | Dopamine's gin files (`published_atari100k.py`) |

PQN is left out (`LEFT_OUT`).
"""

from __future__ import annotations

from xladder.families.value.published import PublishedAgent, Table, derived

LEFT_OUT = {
    "pqn": "PQN (mttga/purejaxql: purejaxql/pqn_atari.py, vwxyzjn/cleanrl: cleanrl/pqn_atari_envpool.py) is left out "
    "on Atari: here it steps its worlds inside one program, where the device would wait for the emulators at every "
    "step."
}
"""Algorithms that were published on Atari and are not here, and why."""

INF = float("inf")
ENVS = "Several envs step together (`--world.num-envs`); theirs is one, with as many updates per step."

# ---- nature ---------------------------------------------------------------------------------------------------------

_ZOO: Table = {
    "protocol": ("nature", ""),
    "world.sticky": (0.0, "repeat_action_probability 0.0"),
    "world.life_loss": (True, "zero_discount_on_life_loss True"),
    "world.noops": (30, "max_noop_steps 30"),
    "world.fire": (False, "no fire reset"),
    "world.fire_after_life": (False, "no fire reset"),
    "world.cap_frames": (108_000, "max_frames_per_episode 108000"),
    "world.stack": (4, "num_stacked_frames 4"),
    "learner.torso": ("nature", "dqn_torso: convolutions VALID"),
    "learner.width": (512, "linear(512)"),
    "learner.head": ("scalar", "dqn_atari_network"),
    "learner.n_step": (1, "TransitionAccumulator"),
    "learner.optimiser": ("rmsprop", "optax.rmsprop, centered, decay 0.95"),
    "learner.lr": (0.00025, "learning_rate 0.00025"),
    "learner.optimiser_eps": (0.01 / 32**2, "optimizer_epsilon 0.01 / 32**2"),
    "learner.loss": ("huber", "grad_error_bound 1/32 on the mean of 32"),
    "learner.clip": (INF, "no clipping of the norm"),
    "learner.gamma": (0.99, "additional_discount 0.99"),
    "learner.clip_rewards": (True, "max_abs_reward 1"),
    "learner.batch_size": (32, "batch_size 32"),
    "learner.memory": (1_000_000, "replay_capacity 1e6"),
    "learner.learning_starts": (50_000, "min_replay_capacity_fraction 0.05"),
    "learner.steps_per_update": (4, "learn_period 16 frames"),
    "learner.target_update_period": (10_000, "target_network_update_period 4e4 frames"),
    "learner.epsilon": (1.0, "exploration_epsilon_begin_value 1"),
    "learner.epsilon_end": (0.1, "exploration_epsilon_end_value 0.1"),
    "learner.epsilon_steps": (1_000_000, "exploration_epsilon_decay_frame_fraction 0.02 of 200e6 frames"),
    "learner.explore_from": (50_000, "begin_t: min_replay_capacity"),
    "frames": (200_000_000, "num_iterations 200 · num_train_frames 1e6"),
    "evaluate_epsilon": (0.05, "eval_exploration_epsilon 0.05"),
}
NATURE = PublishedAgent("dqn", "nature", "deepmind/dqn_zoo: dqn_zoo/dqn/run_atari.py", _ZOO, (ENVS,))
_ZOO_DOUBLE: Table = {
    "learner.double": (True, "double_q_learning"),
    "learner.target_update_period": (30_000, "target_network_update_period 1.2e5 frames"),
    "learner.epsilon_end": (0.01, "exploration_epsilon_end_value 0.01"),
    "evaluate_epsilon": (0.01, "eval_exploration_epsilon 0.01"),
}
_ZOO_ADAM: Table = {
    "learner.optimiser": ("adam", "optax.adam"),
    "learner.optimiser_eps": (0.01 / 32, "optimizer_epsilon 0.01 / 32"),
    "learner.clip": (10.0, "max_global_grad_norm 10"),
    "learner.epsilon_end": (0.01, "exploration_epsilon_end_value 0.01"),
    "evaluate_epsilon": (0.001, "eval_exploration_epsilon 0.001"),
}
_ZOO_ATOMS: Table = {
    "learner.head": ("categorical", "c51_atari_network"),
    "learner.atoms": (51, "num_atoms 51"),
    "learner.v_min": (-10.0, "vmax 10"),
    "learner.v_max": (10.0, "vmax 10"),
}
_NATURE = (
    NATURE,
    derived(
        NATURE,
        "double",
        "deepmind/dqn_zoo: dqn_zoo/double_q/run_atari.py (van Hasselt et al. 2016, tuned)",
        _ZOO_DOUBLE,
        ("The outputs have a bias each; theirs share one.",),
    ),
    derived(
        NATURE,
        "dueling",
        "Wang et al. 2016, section 4.2; the rest as double",
        {
            **_ZOO_DOUBLE,
            "learner.dueling": (True, "figure 1"),
            "learner.streams": ("apart", "512 units in each stream"),
            "learner.clip": (10.0, "gradients clipped to norm 10"),
        },
        (
            "The learning rate is double's: the paper's is lower, and not given.",
            "The gradient that enters the convolutions is not scaled by 1/√2.",
        ),
    ),
    derived(NATURE, "c51", "deepmind/dqn_zoo: dqn_zoo/c51/run_atari.py", {**_ZOO_ADAM, **_ZOO_ATOMS}),
    derived(
        NATURE,
        "qrdqn",
        "deepmind/dqn_zoo: dqn_zoo/qrdqn/run_atari.py",
        {
            **_ZOO_ADAM,
            "learner.head": ("quantile", "qr_atari_network"),
            "learner.quantiles": (201, "num_quantiles 201"),
            "learner.kappa": (1.0, "huber_param 1"),
            "learner.lr": (0.00005, "learning_rate 0.00005"),
        },
    ),
    derived(
        NATURE,
        "iqn",
        "deepmind/dqn_zoo: dqn_zoo/iqn/run_atari.py",
        {
            **_ZOO_ADAM,
            "learner.clip": (INF, "no clipping of the norm"),
            "learner.head": ("implicit", "iqn_atari_network"),
            "learner.quantiles": (64, "tau_samples_s_tm1 64, tau_samples_s_t 64"),
            "learner.act_quantiles": (64, "tau_samples_policy 64"),
            "learner.cosines": (64, "tau_latent_dim 64"),
            "learner.kappa": (1.0, "huber_param 1"),
            "learner.lr": (0.00005, "learning_rate 0.00005"),
            "learner.learning_starts": (20_000, "min_replay_capacity_fraction 0.02"),
            "learner.explore_from": (20_000, "begin_t: min_replay_capacity"),
        },
    ),
    derived(
        NATURE,
        "rainbow",
        "deepmind/dqn_zoo: dqn_zoo/rainbow/run_atari.py (Hessel et al. 2018)",
        {
            **_ZOO_ADAM,
            **_ZOO_ATOMS,
            "learner.double": (True, "categorical_double_q_learning"),
            "learner.dueling": (True, "rainbow_atari_network"),
            "learner.streams": ("apart", "noisy_linear(512) for each stream"),
            "learner.noisy": (True, "noisy_linear"),
            "learner.sigma": (0.1, "noisy_weight_init 0.1"),
            "learner.n_step": (3, "n_steps 3"),
            "learner.prioritised": (True, "PrioritizedTransitionReplay"),
            "learner.alpha": (0.5, "priority_exponent 0.5"),
            "learner.beta": (0.4, "importance_sampling_exponent_begin_value 0.4"),
            "learner.beta_end": (1.0, "importance_sampling_exponent_end_value 1"),
            "learner.lr": (0.00025 / 4, "learning_rate 0.00025 / 4"),
            "learner.optimiser_eps": (0.005 / 32, "optimizer_epsilon 0.005 / 32"),
            "learner.learning_starts": (20_000, "min_replay_capacity_fraction 0.02"),
            "learner.target_update_period": (8_000, "target_network_update_period 3.2e4 frames"),
            "learner.epsilon": (0.0, "greedy"),
            "learner.epsilon_end": (0.0, "greedy"),
            "learner.explore_from": (0, "greedy"),
            "evaluate_epsilon": (0.0, "exploration_epsilon 0"),
        },
        (
            "No share of the samples is uniform (theirs: 0.001), and priorities have no upper bound (theirs: 100).",
            "Noise is not truncated at two deviations; the output layers have biases; evaluations have no noise.",
        ),
    ),
)

# ---- dopamine -------------------------------------------------------------------------------------------------------

_GIN: Table = {
    "protocol": ("dopamine", ""),
    "world.sticky": (0.25, "sticky_actions True"),
    "world.life_loss": (False, "terminal_on_life_loss False"),
    "world.noops": (0, "no no-op starts"),
    "world.fire": (False, "no fire reset"),
    "world.fire_after_life": (False, "no fire reset"),
    "world.cap_frames": (108_000, "max_steps_per_episode 27_000"),
    "world.stack": (4, "NATURE_DQN_STACK_SIZE 4"),
    "learner.torso": ("nature_same", "nn.Conv, padding SAME: 7744 features"),
    "learner.width": (512, "nn.Dense 512"),
    "learner.head": ("scalar", "NatureDQNNetwork"),
    "learner.n_step": (1, "update_horizon 1"),
    "learner.optimiser": ("adam", "optimizer 'adam'"),
    "learner.lr": (6.25e-5, "learning_rate 6.25e-5"),
    "learner.optimiser_eps": (1.5e-4, "eps 1.5e-4"),
    "learner.loss": ("squared", "loss_type 'mse'"),
    "learner.clip": (INF, "no clipping"),
    "learner.gamma": (0.99, "gamma 0.99"),
    "learner.clip_rewards": (True, "Runner clips rewards to [-1, 1]"),
    "learner.batch_size": (32, "batch_size 32"),
    "learner.memory": (1_000_000, "max_capacity 1_000_000"),
    "learner.learning_starts": (20_000, "min_replay_history 20_000"),
    "learner.steps_per_update": (4, "update_period 4"),
    "learner.target_update_period": (8_000, "target_update_period 8_000"),
    "learner.epsilon": (1.0, "linearly_decaying_epsilon from 1"),
    "learner.epsilon_end": (0.01, "epsilon_train 0.01"),
    "learner.epsilon_steps": (250_000, "epsilon_decay_period 250_000"),
    "learner.explore_from": (20_000, "warmup_steps: min_replay_history"),
    "frames": (200_000_000, "num_iterations 200 · training_steps 250_000 · 4 frames"),
    "evaluate_epsilon": (0.001, "epsilon_eval 0.001"),
}
_INITIAL = "Initial weights are uniform in ±1/√inputs; theirs are Glorot's or a third of that variance."
_AGENTS = "google/dopamine: dopamine/jax/agents"
DOPAMINE = PublishedAgent("dqn", "dopamine", f"{_AGENTS}/dqn/configs/dqn.gin", _GIN, (ENVS, _INITIAL))
_GIN_ATOMS: Table = {
    "learner.head": ("categorical", "RainbowNetwork"),
    "learner.atoms": (51, "num_atoms 51"),
    "learner.v_min": (-10.0, "vmax 10"),
    "learner.v_max": (10.0, "vmax 10"),
}
_GIN_QUANTILES: Table = {
    "learner.kappa": (1.0, "kappa 1.0"),
    "learner.n_step": (3, "update_horizon 3"),
    "learner.lr": (0.00005, "learning_rate 0.00005"),
    "learner.optimiser_eps": (0.0003125, "eps 0.0003125"),
}
DOPAMINE_RAINBOW = derived(
    DOPAMINE,
    "rainbow",
    f"{_AGENTS}/full_rainbow/configs/full_rainbow.gin",
    {
        **_GIN_ATOMS,
        "learner.double": (True, "double_dqn True"),
        "learner.dueling": (True, "dueling True"),
        "learner.streams": ("shared", "FullRainbowNetwork: one layer of 512"),
        "learner.noisy": (True, "noisy True"),
        "learner.sigma": (0.1, "sigma_init 0.1 / sqrt(inputs)"),
        "learner.n_step": (3, "update_horizon 3"),
        "learner.prioritised": (True, "replay_scheme 'prioritized'"),
        "learner.alpha": (0.5, "priorities sqrt(loss)"),
        "learner.beta": (0.5, "loss_weights 1 / sqrt(probs)"),
        "learner.beta_end": (0.5, "loss_weights 1 / sqrt(probs)"),
        "learner.epsilon": (0.0, "zero_epsilon, since noisy"),
        "learner.epsilon_end": (0.0, "zero_epsilon, since noisy"),
        "learner.explore_from": (0, "zero_epsilon, since noisy"),
    },
    ("Every layer draws its own noise; their layers share a key.",),
)
_DOPAMINE = (
    DOPAMINE,
    derived(
        DOPAMINE,
        "c51",
        f"{_AGENTS}/rainbow/configs/c51.gin",
        {
            **_GIN_ATOMS,
            "learner.lr": (0.00025, "learning_rate 0.00025"),
            "learner.optimiser_eps": (0.0003125, "eps 0.0003125"),
        },
    ),
    derived(
        DOPAMINE,
        "qrdqn",
        f"{_AGENTS}/quantile/configs/quantile.gin",
        {
            **_GIN_QUANTILES,
            "learner.head": ("quantile", "QuantileNetwork"),
            "learner.quantiles": (200, "num_atoms 200"),
            "learner.prioritised": (True, "replay_scheme 'prioritized'"),
            "learner.alpha": (0.5, "priorities sqrt(loss)"),
            "learner.beta": (0.0, "weights are logged, not learned from"),
            "learner.beta_end": (0.0, "weights are logged, not learned from"),
        },
    ),
    derived(
        DOPAMINE,
        "iqn",
        f"{_AGENTS}/implicit_quantile/configs/implicit_quantile.gin",
        {
            **_GIN_QUANTILES,
            "learner.head": ("implicit", "ImplicitQuantileNetwork"),
            "learner.quantiles": (64, "num_tau_samples 64, num_tau_prime_samples 64"),
            "learner.act_quantiles": (32, "num_quantile_samples 32"),
            "learner.cosines": (64, "quantile_embedding_dim 64"),
        },
        ("The next action is chosen by 64 fractions; theirs is by 32.",),
    ),
    derived(
        DOPAMINE,
        "munchausen",
        "google-research/google-research: munchausen_rl/configs/atari.gin (Vieillard et al. 2020)",
        {
            "learner.munchausen": (True, "MunchausenDQNAgent"),
            "learner.munchausen_scale": (0.9, "alpha 0.9"),
            "learner.temperature": (0.03, "tau 0.03"),
            "learner.munchausen_floor": (-1.0, "clip_value_min -1"),
            "learner.loss": ("huber", "tf.losses.huber_loss of DQNAgent"),
            "learner.lr": (0.00005, "optimizer_lr 0.00005"),
            "learner.optimiser_eps": (0.0003125, "epsilon 0.0003125"),
        },
    ),
    DOPAMINE_RAINBOW,
)

# ---- cleanrl --------------------------------------------------------------------------------------------------------

_SCRIPT: Table = {
    "protocol": ("cleanrl", ""),
    "world.sticky": (0.0, "NoFrameskip-v4"),
    "world.life_loss": (True, "EpisodicLifeEnv"),
    "world.noops": (30, "NoopResetEnv noop_max 30"),
    "world.fire": (True, "FireResetEnv"),
    "world.fire_after_life": (True, "FireResetEnv outside EpisodicLifeEnv"),
    "world.cap_frames": (108_000, "NoFrameskip-v4: half an hour"),
    "world.stack": (4, "FrameStack 4"),
    "learner.torso": ("nature", "convolutions VALID"),
    "learner.width": (512, "Linear 512"),
    "learner.head": ("scalar", "QNetwork"),
    "learner.n_step": (1, "one step"),
    "learner.optimiser": ("adam", "Adam"),
    "learner.lr": (1e-4, "learning_rate 1e-4"),
    "learner.optimiser_eps": (1e-8, "Adam's default"),
    "learner.loss": ("squared", "mse_loss"),
    "learner.clip": (INF, "no clipping"),
    "learner.gamma": (0.99, "gamma 0.99"),
    "learner.clip_rewards": (True, "ClipRewardEnv"),
    "learner.batch_size": (32, "batch_size 32"),
    "learner.memory": (1_000_000, "buffer_size 1000000"),
    "learner.learning_starts": (80_000, "learning_starts 80000"),
    "learner.steps_per_update": (4, "train_frequency 4"),
    "learner.target_update_period": (1_000, "target_network_frequency 1000"),
    "learner.epsilon": (1.0, "start_e 1"),
    "learner.epsilon_end": (0.01, "end_e 0.01"),
    "learner.epsilon_steps": (1_000_000, "exploration_fraction 0.10 of 10000000"),
    "learner.explore_from": (0, "from the first step"),
    "frames": (40_000_000, "total_timesteps 10000000 · 4 frames"),
    "evaluate_epsilon": (0.01, "epsilon end_e"),
}
_FIRE = "FIRE after a lost life is one step of the run; theirs is a reset that the agent does not see."
CLEANRL = PublishedAgent("dqn", "cleanrl", "vwxyzjn/cleanrl: cleanrl/dqn_atari_jax.py", _SCRIPT, (ENVS, _FIRE))
_SCRIPT_ATOMS: Table = {
    "learner.head": ("categorical", "n_atoms outputs per action"),
    "learner.atoms": (51, "n_atoms 51"),
    "learner.v_min": (-10.0, "v_min -10"),
    "learner.v_max": (10.0, "v_max 10"),
}
_CLEANRL = (
    CLEANRL,
    derived(
        CLEANRL,
        "c51",
        "vwxyzjn/cleanrl: cleanrl/c51_atari_jax.py",
        {
            **_SCRIPT_ATOMS,
            "learner.lr": (2.5e-4, "learning_rate 2.5e-4"),
            "learner.optimiser_eps": (0.01 / 32, "eps 0.01 / batch_size"),
            "learner.target_update_period": (10_000, "target_network_frequency 10000"),
        },
        ("Probabilities are not clipped to [1e-5, 1 − 1e-5] in the loss.",),
    ),
    derived(
        CLEANRL,
        "rainbow",
        "vwxyzjn/cleanrl: cleanrl/rainbow_atari.py",
        {
            **_SCRIPT_ATOMS,
            "learner.double": (True, "best_actions of q_network"),
            "learner.dueling": (True, "value_head, advantage_head"),
            "learner.streams": ("apart", "NoisyLinear 512 for each head"),
            "learner.noisy": (True, "NoisyLinear"),
            "learner.sigma": (0.5, "std_init 0.5"),
            "learner.n_step": (3, "n_step 3"),
            "learner.prioritised": (True, "PrioritizedReplayBuffer"),
            "learner.alpha": (0.5, "prioritized_replay_alpha 0.5"),
            "learner.beta": (0.4, "prioritized_replay_beta 0.4"),
            "learner.beta_end": (1.0, "annealed to 1"),
            "learner.lr": (0.0000625, "learning_rate 0.0000625"),
            "learner.optimiser_eps": (1.5e-4, "eps 1.5e-4"),
            "learner.target_update_period": (8_000, "target_network_frequency 8000"),
            "learner.epsilon": (0.0, "greedy"),
            "learner.epsilon_end": (0.0, "greedy"),
            "evaluate_epsilon": (0.0, "greedy"),
        },
        (
            "Noise is factorised, and drawn anew for every step and pass; theirs is independent for each weight, and "
            "drawn once per update.",
            "Probabilities are not clipped to [1e-5, 1 − 1e-5] in the loss.",
        ),
    ),
)

AGENTS = (*_NATURE, *_DOPAMINE, *_CLEANRL)
