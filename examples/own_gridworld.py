"""A custom gridworld for two agents, on several rungs.

One agent has to stand on the button to keep the door open for the other, who then reaches the treasure; both get the
reward. The world has JaxMARL's API (`reset`, `step_env`, spaces) in plain JAX, and does not import xladder.

    xladder check marl/own_gridworld:ButtonDoor
    xladder train marl/own_gridworld:ButtonDoor --rung fused --seeds 4
    xladder compare marl/own_gridworld:ButtonDoor --rungs torch,sequential,fused
    python own_gridworld.py            # the same from Python, shorter
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

SIDE, STEPS = 5, 30
BUTTON, DOOR, TREASURE = jnp.array([0, 4]), jnp.array([2, 2]), jnp.array([4, 4])
MOVES = jnp.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])  # stay, up, down, left, right


class Discrete:
    """An action space of `n` actions, numbered from 0: all that xladder needs of it."""

    def __init__(self, n: int):
        self.n = n


class State(NamedTuple):
    """The positions of the two agents, and the number of steps so far."""

    positions: jax.Array  # int32 [2, 2]
    time: jax.Array  # int32 []


class ButtonDoor:
    """A wall in row 2 has a door in its middle, which is open while an agent stands on the button above."""

    agents = ("opener", "runner")

    def reset(self, key):
        """Both agents start in the top row."""
        columns = jax.random.permutation(key, jnp.arange(3))[:2]
        state = State(jnp.stack([jnp.zeros(2, jnp.int32), columns], axis=1), jnp.int32(0))
        return self.observe(state), state

    def step_env(self, key, state, actions):
        """Both agents move at once."""
        moves = MOVES[jnp.stack([actions[agent] for agent in self.agents])]
        pressed = (state.positions == BUTTON).all(1).any()
        there = jnp.clip(state.positions + moves, 0, SIDE - 1)
        on_wall = (there[:, 0] == DOOR[0]) & ((there[:, 1] != DOOR[1]) | ~pressed)
        state = State(jnp.where(on_wall[:, None], state.positions, there), state.time + 1)
        found = (state.positions == TREASURE).all(1).any()
        over = found | (state.time >= STEPS)
        rewards = dict.fromkeys(self.agents, jnp.where(found, 1.0, -0.01))
        dones = {**dict.fromkeys(self.agents, over), "__all__": over}
        return self.observe(state), state, rewards, dones, {"truncated": over & ~found}

    def observe(self, state):
        """Each agent observes its own and the other's position, one-hot, and whether the door is open."""
        cells = jax.nn.one_hot(state.positions[:, 0] * SIDE + state.positions[:, 1], SIDE * SIDE)
        open_door = (state.positions == BUTTON).all(1).any().astype(jnp.float32)[None]
        return {agent: jnp.concatenate([cells[i], cells[1 - i], open_door]) for i, agent in enumerate(self.agents)}

    def action_space(self, agent):
        """Five moves."""
        return Discrete(len(MOVES))


if __name__ == "__main__":
    import xladder

    world = ButtonDoor()
    settings = {
        "seeds": 2,
        "steps": 20_000,
        "evaluate_episodes": 0,
        "learner": {"hidden": (64,), "width": 64},
        "progress": False,
    }
    result = xladder.train(world, "fused", **settings)
    score = result.evaluate(episodes=20)
    print(f"fused: return {score['mean_return']:.2f}, random play {score['random_return']:.2f}")
    short = {"steps": 1_000, "evaluate_episodes": 0, "learner": {"learning_starts": 200}, "progress": False}
    losses = [xladder.train(world, rung, **short).metrics["loss"][0, -1] for rung in ("sequential", "parallel")]
    print(f"sequential and parallel: losses after 1,000 steps are {abs(losses[0] - losses[1]):.1e} apart")
