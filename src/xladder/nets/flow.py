"""The network of a GFlowNet: hidden layers on looked-up rows, and a head each for forward and backward policy and flow.

Shapes: R states, D coordinates, H values of each, W width, A = D + 1 forward actions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from xladder.nets.affine import PlainDense
from xladder.nets.initial import symmetric_uniform

HEADS = ("forward", "backward", "flow")
MOST_ONE_HOT = 1024  # rows of a table whose gradient is quicker as a product than as a sum row by row


class Said(NamedTuple):
    """What the network says of R states; None for a head it does not have or was not asked for."""

    forward: jax.Array | None  # float32 [R, A]: logits, not masked
    backward: jax.Array | None  # float32 [R, D]: logits, not masked
    log_flow: jax.Array | None  # float32 [R]


@jax.custom_vjp
def add_rows(table: jax.Array, rows: jax.Array) -> jax.Array:
    """float32 [R, W]: for each state the sum of the rows [R, D] of a table: a product with a one-hot matrix.

    Forwards the rows are looked up. Backwards a small table takes the product after all, which is ten times quicker
    than adding row by row.
    """
    return table[rows].sum(1)


def _add_rows_forward(table: jax.Array, rows: jax.Array) -> tuple[jax.Array, Any]:
    return add_rows(table, rows), (rows, table.shape[0])


def _add_rows_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, None]:
    rows, height = saved
    if height > MOST_ONE_HOT:
        repeated = jnp.broadcast_to(gradient[:, None], (*rows.shape, gradient.shape[-1]))
        return jnp.zeros((height, gradient.shape[-1]), gradient.dtype).at[rows].add(repeated), None
    shown = (rows[:, :, None] == jnp.arange(height)[None, None, :]).any(1)  # [R, height]: rows of a state differ
    return shown.astype(gradient.dtype).T @ gradient, None


add_rows.defvjp(_add_rows_forward, _add_rows_backward)


class Trunk(nn.Module):
    """Hidden layers with ReLU; the first is dense on the one-hot encoding of a state."""

    inputs: int
    width: int
    layers: int

    @nn.compact
    def __call__(self, rows: jax.Array) -> jax.Array:
        """float32 [R, W] from the encoding's rows that are on, int32 [R, D]."""
        init = symmetric_uniform(self.inputs**-0.5)
        table = self.param("rows", init, (self.inputs, self.width), jnp.float32)
        bias = self.param("bias", init, (self.width,), jnp.float32)
        x = nn.relu(add_rows(table, rows) + bias[None, :])
        for layer in range(1, self.layers):
            x = nn.relu(PlainDense(self.width, name=f"hidden_{layer}")(x))
        return x


class FlowNet(nn.Module):
    """What a GFlowNet knows of a state, and log Z. Modules bear the names they have in PyTorch."""

    dim: int
    side: int
    width: int
    layers: int
    heads: tuple[str, ...] = HEADS
    shared: bool = True
    has_log_z: bool = True

    def setup(self) -> None:
        """One trunk for all heads, or one for each."""
        sizes = {"forward": self.dim + 1, "backward": self.dim, "flow": 1}
        for trunk in dict.fromkeys(self._trunk(head) for head in self.heads):
            setattr(self, trunk, Trunk(self.dim * self.side, self.width, self.layers))
        for head in self.heads:
            setattr(self, f"{head}_head", PlainDense(sizes[head]))
        if self.has_log_z:
            self.log_z = self.param("log_z", nn.initializers.zeros, (), jnp.float32)

    def __call__(self, rows: jax.Array, heads: tuple[str, ...] = HEADS) -> Said:
        """What the chosen heads say of states whose encoding has these rows on, int32 [R, D]."""
        asked = [head for head in self.heads if head in heads]
        trunks = dict.fromkeys(self._trunk(head) for head in asked)
        hidden = {name: getattr(self, name)(rows) for name in trunks}
        said = {head: getattr(self, f"{head}_head")(hidden[self._trunk(head)]) for head in asked}
        flow = said.get("flow")
        return Said(said.get("forward"), said.get("backward"), None if flow is None else flow[:, 0])

    def _trunk(self, head: str) -> str:
        return "trunk" if self.shared else f"{head}_trunk"
