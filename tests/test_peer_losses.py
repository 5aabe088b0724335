"""GFlowNet losses against torchgfn 2.4.1 in float64: its numbers for five trajectories on the 8 × 8 grid, written down.

There, policies and flows were tables of the sines and cosines below, and the reward its `original` one with R0 = 0.1,
R1 = 0.5 and R2 = 2. Its transition losses are means over transitions. gfnx's are half of these: it uses x²/2.
"""

import jax
import numpy as np
import pytest
import torch

from xladder.losses import balance, balance_torch
from xladder.worlds.hypergrid_host import HostGrid
from xladder.worlds.hypergrid_settings import WorldConfig

SIDE, STOP, LOG_Z, LAM = 8, 2, 0.7, 0.9
ACTIONS = [[2], [0, 1, 0, 2], [0, 1, 1, 2], [1, 1, 1, 1, 0, 0, 0, 1, 1, 2], [1, 1, 2]]
LENGTH = np.array([len(way) for way in ACTIONS])

TORCHGFN = {
    "trajectory_balance": 4.139443218839814,
    "detailed_balance": 3.2832583192186195,
    "sub_trajectory_balance": 4.344219357089309,
    "forward_looking_balance": 2.263649269902981,
    "forward_looking_sub_trajectory_balance": 3.061146875035012,
    "flow_matching": 11.158764446747746,
    "log_partition_variance": 3.747222203619139,
    "relative_trajectory_balance": 2 * 6.440212769978298,  # its default is half of the square
}


def log_softmax(logits, mask):
    logits = np.where(mask, logits, -np.inf)
    return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


def tables():
    """log P_F, log P_B, log F and the prior's log P_F of every cell, float64."""
    n = np.arange(SIDE**2)
    cells = np.indices((SIDE, SIDE)).reshape(2, -1).T
    onward, back = np.append(cells < SIDE - 1, np.ones((len(n), 1), bool), axis=1), cells > 0
    back[0] = True  # the origin has no parents; what stands there is not read
    forward = np.stack([np.sin(1 + n + 5 * a) for a in range(3)], axis=1)
    backward = np.stack([np.cos(2 + 3 * n + a) for a in range(2)], axis=1)
    prior = np.stack([np.cos(n + a) for a in range(3)], axis=1)
    return log_softmax(forward, onward), log_softmax(backward, back), 1.5 + np.sin(7 * n), log_softmax(prior, onward)


def numbers():
    """The arguments of all losses for the five trajectories, float64 [5, 10] or [5]; zeros in the padding."""
    log_pf, log_pb, log_flow, prior = tables()
    cells = np.indices((SIDE, SIDE)).reshape(2, -1).T
    # Exactly the reward of the grid, in float64: float32 would cost the digits that are compared.
    levels = np.log([0.1, 0.6, 2.6])
    log_r = levels[np.abs(HostGrid(WorldConfig(2, SIDE, "torchgfn")).log_reward(cells)[:, None] - levels).argmin(1)]
    names = ("log_pf", "log_pb", "log_flow", "log_prior", "log_rewards", "log_inflow")
    found = {name: np.zeros((len(ACTIONS), LENGTH.max())) for name in names}
    for b, way in enumerate(ACTIONS):
        cell = np.zeros(2, int)
        for t, action in enumerate(way):
            n = SIDE * cell[0] + cell[1]
            found["log_pf"][b, t], found["log_prior"][b, t] = log_pf[n, action], prior[n, action]
            found["log_flow"][b, t], found["log_rewards"][b, t] = log_flow[n], log_r[n]
            parents = [(a, n - (SIDE, 1)[a]) for a in range(2) if cell[a] > 0]
            if parents:
                found["log_inflow"][b, t] = np.logaddexp.reduce([log_flow[p] + log_pf[p, a] for a, p in parents])
            if action != STOP:
                cell[action] += 1
                found["log_pb"][b, t] = log_pb[SIDE * cell[0] + cell[1], action]
    log_reward = found["log_rewards"][np.arange(len(ACTIONS)), LENGTH - 1]
    return found | {"log_reward": log_reward}


def in_jax(name, x):
    """A loss of the batch as the learner puts it together, in JAX."""
    mapped = jax.vmap(getattr(balance, name), in_axes=AXES.get(name, 0)) if name != "log_partition_variance" else None
    if name == "log_partition_variance":
        return balance.log_partition_variance(jax.vmap(balance.log_weight)(*arguments("log_weight", x)))
    if name == "flow_matching":
        states, stops = jax.vmap(balance.flow_matching_squares)(*arguments(name, x))
        return states.sum() / (LENGTH - 1).sum() + stops.mean()
    losses = mapped(*arguments(name, x))
    return balance.mean_over_transitions(losses, jax.numpy.asarray(LENGTH)) if name in MEANS else losses.mean()


def in_torch(name, x):
    """The same in PyTorch."""
    x = {key: torch.tensor(value) for key, value in x.items()}
    if name == "log_partition_variance":
        return balance_torch.log_partition_variance(balance_torch.log_weight(*arguments("log_weight", x)))
    if name == "flow_matching":
        states, stops = balance_torch.flow_matching_squares(*arguments(name, x))
        return states.sum() / (LENGTH - 1).sum() + stops.mean()
    losses = getattr(balance_torch, name)(*arguments(name, x))
    return balance_torch.mean_over_transitions(losses, torch.tensor(LENGTH)) if name in MEANS else losses.mean()


MEANS = ("detailed_balance", "forward_looking_balance")
WITH_Z, WITH_LAM = (None, 0, 0, 0, 0), (0, 0, 0, 0, 0, None)
AXES = {
    "trajectory_balance": WITH_Z,
    "relative_trajectory_balance": WITH_Z,
    "sub_trajectory_balance": WITH_LAM,
    "forward_looking_sub_trajectory_balance": WITH_LAM,
}


def arguments(name, x):
    last = "log_rewards" if name.startswith("forward_looking") else "log_reward"
    middle = {
        "trajectory_balance": ("log_pf", "log_pb"),
        "relative_trajectory_balance": ("log_pf", "log_prior"),
        "log_weight": ("log_pf", "log_pb"),
        "flow_matching": ("log_inflow", "log_flow", "log_pf"),
    }.get(name, ("log_flow", "log_pf", "log_pb"))
    length = torch.tensor(LENGTH) if isinstance(x["log_pf"], torch.Tensor) else LENGTH
    given = [*(x[key] for key in middle), x[last], length]
    first = [np.float64(LOG_Z)] if AXES.get(name) == WITH_Z else []
    return [*first, *given, *([LAM] if AXES.get(name) == WITH_LAM else [])]


@pytest.mark.parametrize("name", TORCHGFN)
def test_a_loss_is_torchgfns_to_the_last_digits(name):
    # Sums of some dozens of numbers below 10, in another order: a few units in the last of 16 digits.
    with jax.enable_x64(True):
        ours = in_jax(name, numbers())
        assert ours.dtype == np.float64
        assert float(ours) == pytest.approx(TORCHGFN[name], rel=2e-15)
    assert in_torch(name, numbers()).item() == pytest.approx(TORCHGFN[name], rel=2e-15)
