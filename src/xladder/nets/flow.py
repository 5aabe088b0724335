"""The network of a GFlowNet: hidden layers on an encoded state, and heads for forward and backward policy and flow.

A state is encoded as features, or as the indices of the active inputs of a one-hot encoding: the first layer is then a
sum of looked-up rows. The hidden layers may be a transformer instead (`flow_transformer.py`). Its heads read the token
that stands for the whole state or, where every token has actions of its own, each token.

Shapes: R states, F features, or K inputs that are on; W width, A forward actions, P of them for each token.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from xladder.nets.affine import PlainDense
from xladder.nets.flow_transformer import TokenTrunk
from xladder.nets.initial import symmetric_uniform

HEADS = ("forward", "backward", "flow")
MOST_DENSE = 1024  # inputs up to which the gradient of looked-up rows may be dense
MOST_WRITTEN_OUT = 16  # rows per state up to which their sum is unrolled


class FlowOutputs(NamedTuple):
    """The network's outputs for R states; None for heads that are missing or not requested."""

    forward: jax.Array | None  # float32 [R, A]: logits, not masked
    backward: jax.Array | None  # float32 [R, A − 1]: logits, not masked
    log_flow: jax.Array | None  # float32 [R]


def add_rows(table: jax.Array, rows: jax.Array) -> jax.Array:
    """float32 [R, W]: for each state the sum of the rows [R, K] of a table: a product with a one-hot matrix."""
    if rows.shape[1] > MOST_WRITTEN_OUT:
        return table[rows].sum(1)
    # Unrolled, so that no array of size [R, K, W] is materialised.
    return sum((table[rows[:, d]] for d in range(1, rows.shape[1])), start=table[rows[:, 0]])


@jax.custom_vjp
def add_rows_densely(table: jax.Array, rows: jax.Array) -> jax.Array:
    """`add_rows`, whose gradient is a product with the one-hot matrix instead of one scatter per active input.

    On a GPU that is two kernels instead of nine, and always adds in the same order.
    """
    return add_rows(table, rows)


def _add_rows_forward(table: jax.Array, rows: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return add_rows(table, rows), (table, rows)


def _add_rows_backward(saved: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, None]:
    table, rows = saved
    inputs = jnp.arange(table.shape[0])[None, :]
    active = jnp.zeros((rows.shape[0], table.shape[0]), gradient.dtype)
    for k in range(rows.shape[1]):
        active = active + (rows[:, k, None] == inputs).astype(gradient.dtype)
    return jnp.dot(active.T, gradient, precision="highest"), None


add_rows_densely.defvjp(_add_rows_forward, _add_rows_backward)


@jax.custom_vjp
def relu(x: jax.Array) -> jax.Array:
    """max(x, 0). The backward pass uses the output, so that the input need not be kept."""
    return jnp.maximum(x, 0.0)


def _relu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    return relu(x), relu(x)


def _relu_backward(given: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    return (jnp.where(given > 0, gradient, 0.0),)


relu.defvjp(_relu_forward, _relu_backward)


@jax.custom_vjp
def few(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """float32 [R, K]: a dense layer with few outputs.

    The kernel's gradient is multiplied in the other order: with the short side first it takes XLA on a CPU a fifth of
    the time.
    """
    return x @ kernel + bias[None, :]


def _few_forward(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> tuple[jax.Array, Any]:
    return few(x, kernel, bias), (x, kernel)


def _few_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, kernel = saved
    return gradient @ kernel.T, (gradient.T @ x).T, gradient.sum(0)


few.defvjp(_few_forward, _few_backward)


def hats(places: jax.Array, knots: np.ndarray) -> jax.Array:
    """float32 [R, N]: weights of knots [N, P] on a lattice from which places [R, P] are interpolated linearly.

    In several dimensions, on the simplices into which the diagonals of the lattice's cubes divide them.
    """
    away = places[:, None, :] - jnp.asarray(knots, jnp.float32)[None]
    above, below = jnp.maximum(away.max(-1), 0.0), jnp.minimum(away.min(-1), 0.0)
    return jnp.maximum(1.0 - above + below, 0.0)


class Head(nn.Module):
    """The parameters of a head, which are concatenated with those of other heads."""

    outputs: int

    @nn.compact
    def __call__(self, inputs: int) -> tuple[jax.Array, jax.Array]:
        """Kernel [W, K] and bias [K]."""
        init = symmetric_uniform(inputs**-0.5)
        kernel = self.param("kernel", init, (inputs, self.outputs), jnp.float32)
        return kernel, self.param("bias", init, (self.outputs,), jnp.float32)


class Trunk(nn.Module):
    """Hidden layers with ReLU; the first is dense on the encoding of a state."""

    inputs: int
    width: int
    layers: int
    knots: int = 0  # inputs that describe a condition
    dense: bool = False  # whether looked-up rows have a dense gradient

    @nn.compact
    def __call__(self, encoded: jax.Array, condition: jax.Array | None = None) -> jax.Array:
        """float32 [R, W] from features float32 [R, F], or from active inputs int32 [R, K]; and `hats` [R, knots]."""
        init = symmetric_uniform(self.inputs**-0.5)
        table = self.param("rows", init, (self.inputs, self.width), jnp.float32)
        bias = self.param("bias", init, (self.width,), jnp.float32)
        on = jnp.issubdtype(encoded.dtype, jnp.integer)
        few_inputs = self.inputs <= MOST_DENSE and encoded.shape[1] <= MOST_WRITTEN_OUT
        looked_up = add_rows_densely if self.dense and few_inputs else add_rows
        x = (looked_up(table, encoded) if on else encoded @ table) + bias[None, :]
        if self.knots:
            assert condition is not None
            x = x + condition @ self.param("condition", init, (self.knots, self.width), jnp.float32)
        x = relu(x)
        for layer in range(1, self.layers):
            x = relu(PlainDense(self.width, name=f"hidden_{layer}")(x))
        return x


class Tokens(NamedTuple):
    """How a transformer reads a state, and where its actions come from."""

    places: int  # K
    actions: int  # P: actions of each token; 0 if all actions are those of the whole state
    heads: int  # of attention


class FlowNet(nn.Module):
    """Policies and flow of a GFlowNet, and log Z. Modules have the same names as in PyTorch."""

    inputs: int
    actions: int
    width: int
    layers: int
    heads: tuple[str, ...] = HEADS
    shared: bool = True
    has_log_z: bool = True
    knots: int = 0  # of a condition; 0 if there is none
    conditioning: str = "both"  # what it changes: input, logits, or both
    tokens: Tokens | None = None  # for a transformer
    dense: bool = False  # see `add_rows_densely`

    def setup(self) -> None:
        """One trunk for all heads, or one for each."""
        sizes = {"forward": self.actions, "backward": self.actions - 1, "flow": 1}
        if self._by_token:
            assert self.tokens is not None
            sizes = {"forward": self.tokens.actions, "backward": self.tokens.actions, "flow": 1}
            self.stop_head = Head(1)
        for trunk in dict.fromkeys(self._trunk(head) for head in self.heads):
            seen = self.knots if self.conditioning != "logits" else 0
            if self.tokens is None:
                module: nn.Module = Trunk(self.inputs, self.width, self.layers, seen, self.dense)
            else:
                module = TokenTrunk(self.inputs, self.width, self.layers, self.tokens.heads, self.tokens.places, seen)
            setattr(self, trunk, module)
        for head in self.heads:
            setattr(self, f"{head}_head", Head(sizes[head]))
        if self.has_log_z:
            shape = (self.knots,) if self.knots else ()  # with a condition, log Z at each knot
            self.log_z = self.param("log_z", nn.initializers.zeros, shape, jnp.float32)
        if self.knots and self.conditioning != "input":
            self.logit_scale = self.param("logit_scale", nn.initializers.zeros, (self.knots,), jnp.float32)

    def __call__(
        self, encoded: jax.Array, heads: tuple[str, ...] = HEADS, condition: jax.Array | None = None
    ) -> FlowOutputs:
        """The outputs of the requested heads for encoded states: float32 [R, F], or int32 [R, K].

        `condition` is float32 [R, knots], the `hats` of a condition. It is an input of the first layer, or scales the
        forward logits by a learned function of it (Kim et al. 2024, "Learning to scale logits").
        """
        outputs: dict[str, jax.Array] = {}
        for trunk in dict.fromkeys(self._trunk(head) for head in self.heads if head in heads):
            asked = [head for head in self.heads if head in heads and self._trunk(head) == trunk]
            if self._by_token:
                outputs |= self._token_outputs(getattr(self, trunk)(encoded, condition), asked)
                continue
            parts = [getattr(self, f"{head}_head")(self.width) for head in asked]
            kernel, bias = (jnp.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
            ends = np.cumsum([part[1].size for part in parts])[:-1]
            hidden = getattr(self, trunk)(encoded, condition)
            together = few(hidden if self.tokens is None else hidden[:, 0], kernel, bias)
            outputs |= dict(zip(asked, jnp.split(together, ends, axis=1), strict=True))
        flow = outputs.get("flow")
        if condition is not None and self.conditioning != "input" and "forward" in outputs:
            outputs["forward"] = outputs["forward"] * jnp.exp(condition @ self.logit_scale)[:, None]
        return FlowOutputs(outputs.get("forward"), outputs.get("backward"), None if flow is None else flow[:, 0])

    @property
    def _by_token(self) -> bool:
        return self.tokens is not None and self.tokens.actions > 0

    def _token_outputs(self, hidden: jax.Array, asked: list[str]) -> dict[str, jax.Array]:
        """The outputs of heads for tokens float32 [R, 1 + K, W]: actions from each token, the rest from the first."""
        whole, each = hidden[:, 0], hidden[:, 1:].reshape(-1, self.width)
        outputs = {}
        for head in asked:
            parameters = getattr(self, f"{head}_head")(self.width)
            rows = few(whole if head == "flow" else each, *parameters)
            outputs[head] = rows.reshape(len(hidden), -1)
            if head == "forward":
                stop = few(whole, *self.stop_head(self.width))
                outputs[head] = jnp.concatenate([outputs[head], stop], axis=1)
        return outputs

    def _trunk(self, head: str) -> str:
        return "trunk" if self.shared else f"{head}_trunk"
