"""Directed acyclic graphs in NumPy: the twin of `dags.py`, which explains states and actions.

Shapes: B graphs, n nodes, A = n·(n − 1) + 1 actions, D = 2·n numbers in a state.
"""

from __future__ import annotations

import numpy as np


class HostDags:
    """Graphs in batches, int64 [B, D]: the parents of each node as a bit mask, then its ancestors."""

    def __init__(self, table: np.ndarray):
        self.table, self.nodes = table, len(table)
        n = self.nodes
        self.state_size, self.num_actions, self.max_steps = 2 * n, n * (n - 1) + 1, n * (n - 1) // 2 + 1
        self.num_inputs = 2 * n * (n - 1)
        self.sources, self.targets = np.nonzero(~np.eye(n, dtype=bool))

    def initial(self, count: int) -> np.ndarray:
        """int64 [count, D]: graphs without edges."""
        return np.zeros((count, self.state_size), np.int64)

    def forward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A]: edges that are not there and close no cycle; stop."""
        taken, led_to = self._pairs(states[:, : self.nodes]), states[:, self.nodes :][:, self.sources]
        closing = (led_to >> self.targets & 1).astype(bool)
        return np.append(~(taken | closing), np.ones((len(states), 1), bool), axis=1)

    def backward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A − 1]: the edges that are there."""
        return self._pairs(states[:, : self.nodes])

    def forward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The graphs with an edge more, but for those that stop."""
        return self._changed(states, actions, present=True)

    def backward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """The graphs without an edge, but for those whose action is stop."""
        return self._changed(states, actions, present=False)

    def encode(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, 2·n·(n − 1)]: which edges there are, and which nodes lead to which."""
        parts = self._pairs(states[:, : self.nodes]), self._pairs(states[:, self.nodes :])
        return np.concatenate(parts, axis=1).astype(np.float32)

    def log_reward(self, states: np.ndarray) -> np.ndarray:
        """float32 [B]: the sums of the nodes' scores."""
        return self.table[np.arange(self.nodes), states[:, : self.nodes]].sum(1, dtype=np.float32)

    def _pairs(self, masks: np.ndarray) -> np.ndarray:
        """bool [B, A − 1]: for each pair of nodes, whether the second's set holds the first."""
        return (masks[:, self.targets] >> self.sources & 1).astype(bool)

    def _changed(self, states: np.ndarray, actions: np.ndarray, present: bool) -> np.ndarray:
        moving = np.flatnonzero(actions < self.num_actions - 1)
        edge = self.targets[actions[moving]], 1 << self.sources[actions[moving]]
        parents = states[:, : self.nodes].copy()
        if present:
            parents[moving, edge[0]] |= edge[1]
        else:
            parents[moving, edge[0]] &= ~edge[1]
        adjacency = (parents[:, :, None] >> np.arange(self.nodes) & 1).astype(bool)  # [B, node, parent]
        reached = adjacency
        for _ in range(max(1, int(np.ceil(np.log2(self.nodes))))):  # paths of twice the length each time
            reached = reached | (reached.astype(np.int64) @ reached > 0)
        return np.concatenate([parents, (reached << np.arange(self.nodes)).sum(-1)], axis=1)
