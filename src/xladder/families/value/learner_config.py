"""Settings of the value learners, and the combinations of them that have a name: `MEMBERS` and `R2D2`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class LearnerConfig:
    """A value learner: torso × head × options."""

    torso: str = "mlp"
    """mlp for vectors, nature for large images (nature_same with padding), minatar for small ones, by_key for
    observations of several parts, or module:Name for your own."""
    hidden: tuple[int, ...] = (128,)
    """Widths of the mlp torso's layers."""
    width: int = 128
    """Width of the head's hidden layer."""
    recurrent: int = 0
    """Units of a GRU between torso and head, which remembers earlier observations; 0 for none."""
    burn_in: int = 10
    """Steps that bring a stored hidden state up to date before the sequence that is learned from (with a GRU)."""
    sequence: int = 20
    """Transitions that are learned from in a row (with a GRU); a batch has `batch_size` such sequences."""
    eta: float = 0.9
    """η: share of a sequence's largest error in its priority; the rest is the mean (with a GRU)."""
    head: Literal["scalar", "categorical", "quantile", "implicit"] = "scalar"
    """How returns are modelled: mean, atoms (C51), fixed quantiles (QR-DQN) or sampled quantiles (IQN)."""
    dueling: bool = False
    """Separate value and advantage streams."""
    streams: Literal["apart", "shared"] = "apart"
    """Whether the streams of a dueling head have a hidden layer each, or share one."""
    double: bool = False
    """Double Q-learning: the online network chooses the next action, the target network evaluates it."""
    noisy: bool = False
    """Explore with noise on the head's weights; usually combined with ε = 0."""
    n_step: int = 1
    """Rewards summed before bootstrapping."""
    prioritised: bool = False
    """Prioritised replay: sample transitions with a large error more often."""
    munchausen: bool = False
    """Add the scaled log-policy to the reward (M-DQN, M-IQN)."""
    lr: float = 1e-3
    """Learning rate."""
    optimiser: Literal["adam", "rmsprop", "rmsprop_torch", "radam"] = "adam"
    """The optimiser; rmsprop is centred, with ε inside the root as in Mnih et al. 2015, or outside as in PyTorch."""
    optimiser_eps: float = 1e-8
    """ε in the optimiser's denominator."""
    loss: Literal["huber", "squared"] = "huber"
    """Loss of a scalar head; the other heads have their own."""
    kappa: float = 1.0
    """κ: the error at which the Huber loss turns from quadratic to linear."""
    clip: float = 10.0
    """Clip gradients to this global norm; inf for no clipping."""
    gamma: float = 0.99
    """Discount per step."""
    clip_rewards: bool = False
    """Clip rewards to [−1, 1] for learning."""
    reward_scale: float = 1.0
    """Multiply rewards by this for learning."""
    batch_size: int = 64
    """Transitions per update."""
    strata: int = 1
    """Groups of envs that contribute equally to each batch; a mesh needs a multiple of its devices."""
    memory: int = 20_000
    """Capacity of the replay memory in steps, over all envs."""
    learning_starts: int = 1000
    """Steps before the first update."""
    steps_per_update: int = 8
    """Agent steps per update; a multiple or a divisor of the number of envs."""
    target_update_period: int = 500
    """Agent steps between hard updates of the target network; 0 for no hard updates."""
    tau: float = 0.0
    """τ of the soft target update after each update; 0 for no soft updates."""
    epsilon: float = 1.0
    """ε at the start: the probability of a random action."""
    epsilon_end: float = 0.05
    """ε at the end of its decay."""
    epsilon_steps: int = 0
    """Agent steps over which ε decays, or its half-life if exponential; 0 means `epsilon_share` of the run."""
    epsilon_share: float = 0.2
    """Fraction of the run over which ε decays, unless `epsilon_steps` is set."""
    explore_from: int = 0
    """Steps before ε starts to decay."""
    epsilon_schedule: Literal["linear", "exponential"] = "linear"
    """How ε decays."""
    explore_repeat: int = 1
    """Steps for which a random action is repeated, for worlds in which single random actions get nowhere."""
    atoms: int = 51
    """Atoms of a categorical head."""
    v_min: float = -10.0
    """Lowest atom of a categorical head."""
    v_max: float = 10.0
    """Highest atom of a categorical head."""
    quantiles: int = 32
    """Quantiles of a quantile head, or quantiles that an implicit head samples per state when learning."""
    act_quantiles: int = 32
    """Quantiles that an implicit head samples per state when acting."""
    cosines: int = 64
    """Cosine features that embed a quantile fraction (implicit head)."""
    sigma: float = 0.5
    """Initial scale σ of the noise in noisy layers."""
    alpha: float = 0.5
    """Priority exponent α: 0 is uniform replay, 1 is fully proportional."""
    beta: float = 0.4
    """Initial importance-sampling exponent β; it moves to `beta_end` over the run."""
    beta_end: float = 1.0
    """Final importance-sampling exponent β; 0 at both ends for no correction."""
    munchausen_scale: float = 0.9
    """Scale of the Munchausen bonus."""
    munchausen_floor: float = -1.0
    """Lower bound of the scaled log-policy in the Munchausen bonus."""
    temperature: float = 0.03
    """Softmax temperature of the Munchausen policy."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the matrix products, and of what is kept of sampled fractions; all else stays float32."""

    @property
    def span(self) -> int:
        """Steps of an env that a sample needs after the one at which it starts."""
        return self.n_step + (self.burn_in + self.sequence - 1 if self.recurrent else 0)


@dataclass(frozen=True)
class PQNConfig:
    """Settings of PQN, the learner without replay (Gallici et al. 2024); torso, width, lr … are under `learner`."""

    rollout: int = 32
    """Steps per env in each rollout."""
    minibatches: int = 8
    """Minibatches per rollout."""
    passes: int = 2
    """Passes over each rollout."""
    lambda_: float = 0.65
    """λ of Q(λ)."""


# The named members of the family, as changes to a world's settings.
_PLAIN = {"double": False, "n_step": 1}
MEMBERS: dict[str, dict[str, Any]] = {
    "dqn": _PLAIN,
    "double": {**_PLAIN, "double": True},
    "dueling": {**_PLAIN, "double": True, "dueling": True},
    "c51": {**_PLAIN, "head": "categorical"},
    "qrdqn": {**_PLAIN, "head": "quantile"},
    "iqn": {**_PLAIN, "head": "implicit"},
    "munchausen": {**_PLAIN, "munchausen": True},
    "rainbow": {
        "head": "categorical",
        "dueling": True,
        "double": True,
        "noisy": True,
        "n_step": 3,
        "prioritised": True,
        "epsilon": 0.0,
        "epsilon_end": 0.0,
    },
}


# R2D2 (Kapturowski et al. 2019; numbers of google-deepmind/acme: acme/agents/jax/r2d2/config.py), as changes to a
# world's settings. Its sizes are for Atari: here a GRU of 64 units instead of an LSTM of 512, sequences of 10 + 20
# steps instead of 40 + 80 and batches of 32 instead of 64, and a sequence may begin at any step instead of every 40th.
# Values are not rescaled, and previous action and reward are no input.
R2D2: dict[str, Any] = {
    "recurrent": 64,
    "burn_in": 10,
    "sequence": 20,
    "batch_size": 32,
    "head": "scalar",
    "double": True,
    "dueling": True,
    "n_step": 5,  # bootstrap_n
    "gamma": 0.997,  # discount
    "prioritised": True,
    "alpha": 0.9,  # priority_exponent
    "beta": 0.6,  # importance_sampling_exponent
    "beta_end": 0.6,
    "eta": 0.9,  # max_priority_weight
    "lr": 1e-3,  # learning_rate
}
