"""A GFlowNet on a custom world: strings of six bits, few of which have a high reward, on several rungs.

    python examples/own_gflownet.py

The same on the command line, in the folder of this file:

    xladder parity flow/own_gflownet:BitStrings
    xladder train flow/own_gflownet:BitStrings --iterations 500
"""

import jax
import jax.numpy as jnp
import numpy as np

import xladder
from xladder.families.gflownet.check import check_world
from xladder.families.gflownet.parity import levels
from xladder.worlds.flow import FlowWorld

BITS = 6


class BitStrings(FlowWorld):
    """Bits are added on the left or on the right until there are six; 11…1 and 00…0 have the highest reward.

    A state is [length, bits …]. Actions: 0 or 1 on the left, 0 or 1 on the right, stop. Several paths lead to the same
    string: "00" comes from "0" by two actions, which are two edges.
    """

    num_actions = 5
    max_steps = BITS + 1

    def initial(self):
        """The empty string."""
        return jnp.zeros(1 + BITS, jnp.int32)

    def forward_mask(self, state):
        """Continue until the string is complete, then stop."""
        done = state[0] == BITS
        return jnp.array([True, True, True, True, False]) != done

    def backward_mask(self, state):
        """The bit on the left or the one on the right may have been added last."""
        left, right = state[1], state[jnp.maximum(state[0], 1)]
        return (state[0] > 0) & jnp.stack([left == 0, left == 1, right == 0, right == 1])

    def forward(self, state, action):
        """Add a bit."""
        length, bits = state[0], state[1:]
        on_left = jnp.roll(bits, 1).at[0].set(action % 2)
        on_right = bits.at[length].set(action % 2)
        return jnp.append(length + 1, jnp.where(action < 2, on_left, on_right))

    def backward(self, state, action):
        """Remove a bit."""
        length, bits = state[0], state[1:]
        off_left = jnp.roll(bits, -1).at[-1].set(0)
        off_right = bits.at[length - 1].set(0)
        return jnp.append(length - 1, jnp.where(action < 2, off_left, off_right))

    def encode(self, state):
        """The network's input: which bits are there, and their values."""
        there = jnp.arange(BITS) < state[0]
        return jnp.concatenate([there, there * state[1:]]).astype(jnp.float32)

    def log_reward(self, state):
        """The more bits agree, the higher."""
        ones = state[1:].sum()
        return 1.5 * jnp.abs(ones - BITS / 2)


def main():
    """Check the world, compare with PyTorch, train on `fused`, and look at a sample."""
    bits = BitStrings()
    faults = check_world(bits)
    print("check:", "; ".join(faults) or "nothing is wrong with this world")

    learner = {"width": 64, "lr": 3e-3, "batch_size": 8}
    changes = {"iterations": 800, "learner": learner, "evaluate_every": 200}
    for level in levels(xladder.plan(bits, changes=changes).config, updates=5):
        print(f"parity: {level.level:<12} {'agrees' if level.passed else 'DIFFERS'}")

    result = xladder.train(bits, "fused", changes=changes)
    distances = result.metrics["tv"][0]
    print("exact total variation:", " → ".join(f"{tv:.3f}" for tv in distances[np.isfinite(distances)]))

    policy = result.policy()
    rng, state, forward = np.random.default_rng(0), np.zeros(1 + BITS, np.int32), jax.jit(bits.forward)
    while (action := int(np.searchsorted(np.cumsum(policy.probabilities(state)), rng.random()))) != 4:
        state = np.asarray(forward(state, action))
    print("a sample:", "".join(map(str, state[1:])), f"log-reward {bits.log_reward(state):.2f}")


if __name__ == "__main__":
    main()
