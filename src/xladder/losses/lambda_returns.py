"""Q(λ) targets over one trajectory, for learners without a target network (Gallici et al. 2024, "PQN").

With v_t = max_a Q(s_{t+1}, a):  G_t = r_t + γ_t·(λ·G_{t+1} + (1 − λ)·v_t),  and  G_t = r_t + γ_t·v_t  at the last step.
λ = 0 is one-step Q-learning, λ = 1 the discounted sum of all rewards with one bootstrap at the end. Trajectories are
not cut at exploratory actions: this is Peng's Q(λ), not Watkins'. Shapes: T steps.
"""

import jax
import jax.numpy as jnp


def q_lambda_targets(
    rewards: jax.Array, discounts: jax.Array, next_values: jax.Array, restart: jax.Array, lam: jax.Array | float
) -> jax.Array:
    """float32 [T]: G_t. It passes no gradient.

    `discounts` [T] are γ, or 0 where the step was terminal. `restart` [T], bool, marks steps t that step t + 1 does not
    continue, because of a truncation or reset in between: t then bootstraps from its own next value and ignores later
    steps. Every operation is elementwise after the first axis, so [T, N] is N trajectories.
    """

    def back(later: jax.Array, step: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        reward, discount, next_value, cut = step
        # `where`, not λ = 0: rows after a restart may hold anything, and 0 · NaN is NaN.
        ahead = jnp.where(cut, next_value, next_value + lam * (later - next_value))
        target = reward + discount * ahead
        return target, target

    # The recursion starts from the last step's next value, which makes λ irrelevant there.
    _, targets = jax.lax.scan(back, next_values[-1], (rewards, discounts, next_values, restart), reverse=True)
    return jax.lax.stop_gradient(targets)
