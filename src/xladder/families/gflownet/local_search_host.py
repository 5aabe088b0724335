"""Local search on the host, in NumPy: the twin of `learners/local_search.py`, with policies from any backend.

Shapes: B trajectories, T steps of the longest, D numbers in a state, A forward actions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xladder.learners.choosing import Explore
from xladder.learners.gflownet import Trajectories
from xladder.learners.local_search import SearchDraws

if TYPE_CHECKING:
    from xladder.families.gflownet.host_loop import HostLoop

POLICY = Explore(np.float32(0), np.float32(1))


def refine(loop: HostLoop, batch: Trajectories, draws: SearchDraws) -> Trajectories:
    """Some rounds of local search from the first trajectories of a batch: the trajectories that were kept."""
    most, condition = loop.config.search_steps, batch.condition
    who = np.arange(len(batch.length))
    log_rewards = loop.log_rewards(batch.states[batch.length - 1, who], condition)
    for undone, back_draws, onward_draws, accept in zip(*draws, strict=True):
        back = loop.sample_backward(batch.states[batch.length - 1, who], back_draws, condition)
        cut = np.maximum(back.length - 1 - np.minimum((undone * np.float32(most + 1)).astype(int), most), 0)
        new = _joined(back, loop.sample(POLICY, onward_draws, back.states[cut, who], condition), cut)
        found = loop.log_rewards(new.states[new.length - 1, who], condition)
        if loop.config.learner.local_search_rule == "better":
            kept = found >= log_rewards
        else:
            ours = found + _log_weights(loop, new, cut) + _log_ways(new.length - 1 - cut, cut, most)
            theirs = log_rewards + _log_weights(loop, back, cut) + _log_ways(back.length - 1 - cut, cut, most)
            kept = np.log(accept) < ours - theirs
        kept &= who < loop.config.searched
        batch = Trajectories(
            np.where(kept[None, :, None], new.states, batch.states),
            np.where(kept[None], new.actions, batch.actions),
            np.where(kept, new.length, batch.length),
            condition,
        )
        log_rewards = np.where(kept, found, log_rewards)
    return batch


def _joined(back: Trajectories, onward: Trajectories, cut: np.ndarray) -> Trajectories:
    """The first `cut` steps of one batch, and then the steps of the other."""
    states, actions = back.states.copy(), back.actions.copy()
    for b, begin in enumerate(cut):
        rest = onward.length[b]
        states[begin : begin + rest, b] = onward.states[:rest, b]
        actions[begin : begin + rest, b] = onward.actions[:rest, b]
    return Trajectories(states, actions, (cut + onward.length).astype(np.int32), back.condition)


def _log_weights(loop: HostLoop, batch: Trajectories, cut: np.ndarray) -> np.ndarray:
    """float32 [B]: log P_B − log P_F of each trajectory's steps from step `cut` on."""
    who, total = np.arange(len(cut)), np.zeros(len(cut), np.float32)
    for t in range(int(batch.length.max())):
        forward = loop.actor.forward_policy(batch.states[t], POLICY, batch.condition)[who, batch.actions[t]]
        backward = loop.actor.backward_policy(batch.states[t], batch.condition)
        before = np.minimum(batch.actions[t - 1], backward.shape[1] - 1)
        with np.errstate(divide="ignore"):  # beyond a trajectory's end anything may be impossible
            undone = np.where(t > cut, np.log(backward[who, before]), 0.0)
            step = undone - np.log(forward)
        total += np.where((t >= cut) & (t < batch.length), step, 0.0).astype(np.float32)
    return total


def _log_ways(moves: np.ndarray, cut: np.ndarray, most: int) -> np.ndarray:
    """float32 [B]: log of how many of the K + 1 equally likely draws undo this many moves; −inf if none does."""
    draws = np.where(cut > 0, 1, np.maximum(most + 1 - moves, 1))
    return np.where(moves <= most, np.log(draws), -np.inf).astype(np.float32)
