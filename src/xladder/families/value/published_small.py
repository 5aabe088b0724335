"""The published agents in CartPole and MinAtar: CleanRL's, PureJaxQL's and those of Young & Tian 2019."""

from __future__ import annotations

from xladder.families.value.published import PublishedAgent, Table, derived

INF = float("inf")
_ENVS = "Several envs step together; theirs is one, with as many updates per step."
_NORMS = "Layer normalisation precedes every ReLU, as theirs; initial weights are uniform in ±1/√inputs."

# ---- CartPole -------------------------------------------------------------------------------------------------------

_SCRIPT: Table = {
    "world.num_envs": (10, "num_envs 1"),
    "learner.torso": ("mlp", "Linear 120, Linear 84"),
    "learner.hidden": ((120,), "Linear 120"),
    "learner.width": (84, "Linear 84"),
    "learner.head": ("scalar", "QNetwork"),
    "learner.double": (False, "max over target_network"),
    "learner.n_step": (1, "one step"),
    "learner.optimiser": ("adam", "Adam"),
    "learner.lr": (2.5e-4, "learning_rate 2.5e-4"),
    "learner.optimiser_eps": (1e-8, "Adam's default"),
    "learner.loss": ("squared", "mse_loss"),
    "learner.clip": (INF, "no clipping"),
    "learner.gamma": (0.99, "gamma 0.99"),
    "learner.batch_size": (128, "batch_size 128"),
    "learner.memory": (10_000, "buffer_size 10000"),
    "learner.learning_starts": (10_000, "learning_starts 10000"),
    "learner.steps_per_update": (10, "train_frequency 10"),
    "learner.target_update_period": (500, "target_network_frequency 500"),
    "learner.tau": (0.0, "tau 1: a copy"),
    "learner.epsilon": (1.0, "start_e 1"),
    "learner.epsilon_end": (0.05, "end_e 0.05"),
    "learner.epsilon_share": (0.5, "exploration_fraction 0.5"),
    "steps": (500_000, "total_timesteps 500000"),
    "evaluate_epsilon": (0.05, "epsilon 0.05"),
}
CLEANRL = PublishedAgent("dqn", "cleanrl", "vwxyzjn/cleanrl: cleanrl/dqn.py", _SCRIPT, (_ENVS,))
_PQN: Table = {
    "algorithm": ("pqn", "PQN"),
    "learner.torso": ("mlp", "dense layers"),
    "learner.head": ("scalar", "QNetwork"),
    "learner.double": (False, "no target network"),
    "learner.n_step": (1, "Q(λ)"),
    "learner.clip": (10.0, "MAX_GRAD_NORM 10"),
    "learner.gamma": (0.99, "GAMMA 0.99"),
    "learner.optimiser": ("radam", "optax.radam"),
    "learner.optimiser_eps": (1e-8, "RAdam's default"),
    "learner.epsilon": (1.0, "EPS_START 1"),
    "learner.epsilon_steps": (0, "EPS_DECAY is a share of the updates"),
    "evaluate_epsilon": (0.0, "EPS_TEST 0"),
}
CARTPOLE = (
    CLEANRL,
    derived(
        CLEANRL,
        "c51",
        "vwxyzjn/cleanrl: cleanrl/c51.py",
        {
            "learner.head": ("categorical", "n_atoms outputs per action"),
            "learner.atoms": (101, "n_atoms 101"),
            "learner.v_min": (-100.0, "v_min -100"),
            "learner.v_max": (100.0, "v_max 100"),
            "learner.optimiser_eps": (0.01 / 128, "eps 0.01 / batch_size"),
        },
        ("Probabilities are not clipped to [1e-5, 1 − 1e-5] in the loss.",),
    ),
    PublishedAgent(
        "pqn",
        "cleanrl",
        "vwxyzjn/cleanrl: cleanrl/pqn.py",
        {
            **_PQN,
            "world.num_envs": (4, "num_envs 4"),
            "pqn.rollout": (128, "num_steps 128"),
            "pqn.minibatches": (4, "num_minibatches 4"),
            "pqn.passes": (4, "update_epochs 4"),
            "pqn.lambda_": (0.65, "q_lambda 0.65"),
            "learner.hidden": ((120,), "Linear 120, LayerNorm"),
            "learner.width": (84, "Linear 84, LayerNorm"),
            "learner.lr": (2.5e-4, "learning_rate 2.5e-4, anneal_lr"),
            "learner.clip": (10.0, "max_grad_norm 10.0"),
            "learner.epsilon_end": (0.05, "end_e 0.05"),
            "learner.epsilon_share": (0.5, "exploration_fraction 0.5"),
            "steps": (499_712, "total_timesteps 500000, whole rollouts of 512"),
        },
        ("The loss has the factor ½ of the paper; theirs has not.", _NORMS),
    ),
    PublishedAgent(
        "pqn",
        "purejaxql",
        "mttga/purejaxql: purejaxql/config/alg/pqn_cartpole.yaml",
        {
            **_PQN,
            "world.num_envs": (32, "NUM_ENVS 32"),
            "pqn.rollout": (64, "NUM_STEPS 64"),
            "pqn.minibatches": (16, "NUM_MINIBATCHES 16"),
            "pqn.passes": (4, "NUM_EPOCHS 4"),
            "pqn.lambda_": (0.95, "LAMBDA 0.95"),
            "learner.hidden": ((256,), "HIDDEN_SIZE 256, NUM_LAYERS 2"),
            "learner.width": (256, "HIDDEN_SIZE 256, NUM_LAYERS 2"),
            "learner.lr": (1e-4, "LR 0.0001, LR_LINEAR_DECAY"),
            "learner.reward_scale": (0.1, "REW_SCALE 0.1"),
            "learner.epsilon_end": (0.2, "EPS_FINISH 0.2"),
            "learner.epsilon_share": (0.2, "EPS_DECAY 0.2"),
            "steps": (499_712, "TOTAL_TIMESTEPS 5e5, whole rollouts of 2048"),
        },
        (_NORMS,),
    ),
)

# ---- MinAtar --------------------------------------------------------------------------------------------------------

_GYMNAX = "gymnax's MinAtar has neither sticky actions nor a difficulty that grows; the paper's has both."
MINATAR = (
    PublishedAgent(
        "dqn",
        "minatar",
        "kenjyoung/MinAtar: examples/dqn.py (Young & Tian 2019)",
        {
            "world.num_envs": (8, "one"),
            "learner.torso": ("minatar", "conv 16 × 3 × 3"),
            "learner.width": (128, "fc_hidden 128"),
            "learner.head": ("scalar", "QNetwork"),
            "learner.double": (False, "max over target_net"),
            "learner.n_step": (1, "one step"),
            "learner.optimiser": ("rmsprop_torch", "RMSprop, centered, alpha SQUARED_GRAD_MOMENTUM 0.95"),
            "learner.lr": (0.00025, "STEP_SIZE 0.00025"),
            "learner.optimiser_eps": (0.01, "MIN_SQUARED_GRAD 0.01, outside the root"),
            "learner.loss": ("huber", "smooth_l1_loss"),
            "learner.clip": (INF, "no clipping"),
            "learner.gamma": (0.99, "GAMMA 0.99"),
            "learner.batch_size": (32, "BATCH_SIZE 32"),
            "learner.memory": (100_000, "REPLAY_BUFFER_SIZE 100000"),
            "learner.learning_starts": (5000, "REPLAY_START_SIZE 5000"),
            "learner.steps_per_update": (1, "TRAINING_FREQ 1"),
            "learner.target_update_period": (1000, "TARGET_NETWORK_UPDATE_FREQ 1000 updates"),
            "learner.epsilon": (1.0, "EPSILON 1.0"),
            "learner.epsilon_end": (0.1, "END_EPSILON 0.1"),
            "learner.epsilon_steps": (100_000, "FIRST_N_FRAMES 100000"),
            "learner.explore_from": (5000, "random until REPLAY_START_SIZE"),
            "steps": (5_000_000, "NUM_FRAMES 5000000"),
        },
        (_ENVS, _GYMNAX),
    ),
    PublishedAgent(
        "pqn",
        "purejaxql",
        "mttga/purejaxql: purejaxql/config/alg/pqn_minatar.yaml",
        {
            **_PQN,
            "world.num_envs": (128, "NUM_ENVS 128"),
            "pqn.rollout": (32, "NUM_STEPS 32"),
            "pqn.minibatches": (32, "NUM_MINIBATCHES 32"),
            "pqn.passes": (2, "NUM_EPOCHS 2"),
            "pqn.lambda_": (0.65, "LAMBDA 0.65"),
            "learner.torso": ("minatar", "Conv 16 × 3 × 3, VALID"),
            "learner.width": (128, "Dense 128"),
            "learner.lr": (5e-4, "LR 0.0005, LR_LINEAR_DECAY"),
            "learner.epsilon_end": (0.05, "EPS_FINISH 0.05"),
            "learner.epsilon_share": (0.1, "EPS_DECAY 0.1"),
            "steps": (9_998_336, "TOTAL_TIMESTEPS 1e7, whole rollouts of 4096"),
        },
        (_NORMS,),
    ),
)
