"""The torsos of value networks: from a state to its features. Leading axes, if any, are batch axes.

`NatureCnn` is from Mnih et al. 2015 and `MinAtarCnn` from Young & Tian 2019, both without the dense layer, which is
part of the head. Features are in PyTorch's order (channel, row, column).

XLA's convolutions are slow on a CPU, especially inside a loop. `patches` turns them into matrix products with the same
parameters and, up to rounding, the same result: each block of stride × stride cells becomes channels of one cell, which
removes the stride, and overlapping patches are either gathered before the product or added after it.

Shapes: B batch, F frames, h × w cells, k × k kernel, s stride, C input channels, O output channels.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xladder.nets.affine import PlainDense, product
from xladder.nets.initial import symmetric_uniform


class Mlp(nn.Module):
    """Dense layers with ReLU, with LayerNorm before each ReLU if `norm`."""

    widths: tuple[int, ...]
    norm: bool = False
    dtype: Any = jnp.float32
    axes: int = 2
    """How many trailing axes make a state."""
    max_value: int = 1
    """Inputs are divided by this."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float32 […, H] from […, F, V]."""
        x = scale(x.reshape(*x.shape[: x.ndim - self.axes], -1), self.max_value)
        for layer, width in enumerate(self.widths):
            x = PlainDense(width, self.dtype, name=f"hidden_{layer}")(x)
            x = nn.relu(normalise(x, layer) if self.norm else x)
        return x


class NatureCnn(nn.Module):
    """Three convolutions for large images; the channels of colours, and stacked frames, become channels."""

    norm: bool = False
    dtype: Any = jnp.float32
    patches: bool = True
    """Compute convolutions as matrix products over patches."""
    padded: bool = False
    """Whether convolutions pad their inputs with zeros (SAME), as Dopamine's do."""
    colour: bool = False
    """Whether images are [H, W, C] instead of [H, W]."""
    max_value: int = 255
    """Inputs are divided by this."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float32 […, 64·h·w] from […, F, H, W] or […, F, H, W, C]; 3136 features of 84 × 84, or 7744 if `padded`."""
        if self.colour:
            x = jnp.moveaxis(x, -1, -3)  # […, F, C, H, W]
            x = x.reshape(*x.shape[:-4], -1, *x.shape[-2:])
        lead, x = x.shape[:-3], x.reshape(-1, *x.shape[-3:])
        for layer, (width, size, stride) in enumerate(((32, 8, 4), (64, 4, 2), (64, 3, 1))):
            if self.padded:
                x = pad_same(x, size, stride, (2, 3) if layer == 0 else (1, 2))
            scaled = 0 if layer else self.max_value
            x = Conv(width, size, stride, scaled, self.dtype, self.patches, name=f"conv_{layer}")(x)
            x = nn.relu(normalise(x, layer) if self.norm else x)
        return flatten(x, lead)


class MinAtarCnn(nn.Module):
    """One convolution for small grids; stacked frames become further channels."""

    norm: bool = False
    dtype: Any = jnp.float32
    patches: bool = True
    """Compute convolutions as matrix products over patches."""
    max_value: int = 1
    """Inputs are divided by this."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float32 […, 16·h·w] from […, F, H, W, C]; 1024 features of 10 × 10 cells."""
        lead, (frames, *grid, channels) = x.shape[:-4], x.shape[-4:]
        x = jnp.moveaxis(x.reshape(-1, *x.shape[-4:]), 1, 3)  # [B, H, W, F, C]
        x = scale(x.reshape(-1, *grid, frames * channels), self.max_value)
        x = Conv(16, 3, 1, 0, self.dtype, self.patches, name="conv_0")(x)
        return flatten(nn.relu(normalise(x, 0) if self.norm else x), lead)


class Conv(nn.Module):
    """A convolution without padding, with PyTorch's default initial distribution."""

    width: int
    size: int
    stride: int
    max_value: int
    """If not 0, the input is images [B, F, H, W], which are divided by this."""
    dtype: Any
    patches: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """float32 [B, h, w, O] from [B, H, W, C] or, for images, [B, F, H, W]."""
        pictures = self.max_value > 0
        channels = x.shape[1] if pictures else x.shape[3]
        shape = (self.size, self.size, channels, self.width)
        init = symmetric_uniform((self.size * self.size * channels) ** -0.5)
        kernel = self.param("kernel", init, shape, jnp.float32)
        bias = self.param("bias", init, shape[3:], jnp.float32)
        if pictures:
            kernel = kernel * (
                1 / self.max_value
            )  # scales the kernel, not the pixels: these are many, and exact in bfloat16
        convolve = convolve_as_products if self.patches else convolve_as_such
        return convolve(x, kernel, self.stride, pictures, self.dtype) + bias[None, None, None, :]


def pad_same(x: jax.Array, size: int, stride: int, axes: tuple[int, int]) -> jax.Array:
    """Pad two axes with zeros so that a convolution of n cells has ⌈n / stride⌉ outputs; the odd zero comes last."""
    widths = [(0, 0)] * x.ndim
    for axis in axes:
        total = max((-(-x.shape[axis] // stride) - 1) * stride + size - x.shape[axis], 0)
        widths[axis] = (total // 2, total - total // 2)
    return jnp.pad(x, widths)


def normalise(x: jax.Array, layer: int) -> jax.Array:
    """LayerNorm over the last axis, as in PyTorch."""
    return nn.LayerNorm(epsilon=1e-5, use_fast_variance=False, name=f"norm_{layer}")(x)


def scale(x: jax.Array, max_value: int) -> jax.Array:
    """float32, divided by `max_value`."""
    x = x.astype(jnp.float32)
    return x if max_value == 1 else x * (1 / max_value)


def flatten(x: jax.Array, lead: tuple[int, ...]) -> jax.Array:
    """[…, C·h·w] from [B, h, w, C]."""
    return jnp.moveaxis(x, 3, 1).reshape(*lead, -1)


def convolve_as_such(x: jax.Array, kernel: jax.Array, stride: int, pictures: bool, dtype: Any) -> jax.Array:
    """float32 [B, h, w, O]: XLA's convolution."""
    axes = ("NCHW" if pictures else "NHWC", "HWIO", "NHWC")
    return _convolve(x.astype(dtype), kernel.astype(dtype), (stride, stride), axes)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _convolve(x: jax.Array, kernel: jax.Array, strides: tuple[int, int], axes: tuple[str, str, str]) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, strides, "VALID", dimension_numbers=axes, preferred_element_type=jnp.float32
    )


def _convolve_forward(x: jax.Array, kernel: jax.Array, strides: Any, axes: Any) -> tuple[jax.Array, Any]:
    return _convolve(x, kernel, strides, axes), (x, kernel)


def _convolve_backward(strides: Any, axes: Any, saved: Any, gradient: jax.Array) -> Any:
    # JAX cannot differentiate a convolution whose output dtype is wider than its input's, so this one keeps the dtype.
    same = partial(jax.lax.conv_general_dilated, window_strides=strides, padding="VALID", dimension_numbers=axes)
    return jax.vjp(same, *saved)[1](gradient.astype(saved[0].dtype))


_convolve.defvjp(_convolve_forward, _convolve_backward)


def convolve_as_products(x: jax.Array, kernel: jax.Array, stride: int, pictures: bool, dtype: Any) -> jax.Array:
    """float32 [B, h, w, O]: a convolution as matrix products. The stride must divide the kernel's side."""
    size, _, channels, width = kernel.shape
    reach = size // stride  # the kernel's side, in blocks
    x = blocks_of_pictures(x, stride) if pictures else blocks(x, stride)
    kernel = kernel.reshape(reach, stride, reach, stride, channels, width)
    kernel = kernel.transpose(0, 2, 4, 1, 3, 5) if pictures else kernel.transpose(0, 2, 1, 3, 4, 5)
    kernel = kernel.reshape(reach, reach, stride * stride * channels, width)
    # Adding afterwards wastes products at the border: few if the kernel is small.
    return add_after(x, kernel, dtype) if reach <= 2 else gather_before(x, kernel, dtype)


def blocks(x: jax.Array, stride: int) -> jax.Array:
    """[B, H/s, W/s, s·s·C] from [B, H, W, C]: each block of s × s cells as one, its channels (row, column, channel)."""
    batch, height, width, channels = x.shape
    rows, columns = height // stride, width // stride
    x = x[:, : rows * stride, : columns * stride].reshape(batch, rows, stride, columns, stride, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, stride * stride * channels)


def blocks_of_pictures(x: jax.Array, stride: int) -> jax.Array:
    """float32 [B, H/s, W/s, F·s·s] from [B, F, H, W]: the same, with channels (frame, row, column)."""
    batch, frames, height, width = x.shape
    rows, columns = height // stride, width // stride
    x = x[:, :, : rows * stride, : columns * stride].reshape(batch, frames, rows, stride, columns, stride)
    order = (0, 2, 4, 1, 3)
    if x.dtype == jnp.uint8 and stride == 4:  # transpose four bytes as one number
        x = jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(x, jnp.uint32).transpose(order), jnp.uint8)
    else:
        x = x.transpose(*order, 5)
    return x.reshape(batch, rows, columns, frames * stride * stride).astype(jnp.float32)


def gather_before(x: jax.Array, kernel: jax.Array, dtype: Any) -> jax.Array:
    """float32 [B, h, w, O] from [B, H, W, C] and [k, k, C, O]: each patch becomes one row."""
    size, _, channels, width = kernel.shape
    batch, height, columns = x.shape[0], x.shape[1] - size + 1, x.shape[2] - size + 1
    parts = [x[:, i : i + height, j : j + columns] for i in range(size) for j in range(size)]
    rows = jnp.concatenate(parts, axis=-1).reshape(-1, size * size * channels)
    return narrow_product(rows, kernel.reshape(-1, width), dtype).reshape(batch, height, columns, width)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def narrow_product(x: jax.Array, kernel: jax.Array, dtype: Any) -> jax.Array:
    """float32 [R, O] from [R, I] and [I, O], where O is small.

    The kernel's gradient is multiplied with the short side first: that takes XLA on a CPU a third less time, and the
    barrier keeps XLA from reordering the product.
    """
    return product(x, kernel, dtype)


def _narrow_forward(x: jax.Array, kernel: jax.Array, dtype: Any) -> tuple[jax.Array, Any]:
    return product(x, kernel, dtype), (x, kernel)


def _narrow_backward(dtype: Any, saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = saved
    to_kernel = jax.lax.optimization_barrier(product(gradient.T, x, dtype))
    return product(gradient, kernel.T, dtype), to_kernel.T


narrow_product.defvjp(_narrow_forward, _narrow_backward)


def add_after(x: jax.Array, kernel: jax.Array, dtype: Any) -> jax.Array:
    """float32 [B, h, w, O] from [B, H, W, C] and [k, k, C, O]: every cell times every part of the kernel."""
    size, _, channels, width = kernel.shape
    parts = product(x.reshape(-1, channels), kernel.transpose(2, 0, 1, 3).reshape(channels, -1), dtype)
    return add_shifted(parts.reshape(*x.shape[:3], size * size * width), size)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def add_shifted(parts: jax.Array, size: int) -> jax.Array:
    """[B, h, w, O] from [B, H, W, k·k·O]: the sum over i, j of part (i, j) of the cell i rows down and j columns on.

    The gradient is written as one array instead of a sum of padded ones.
    """
    height, columns, width = parts.shape[1] - size + 1, parts.shape[2] - size + 1, parts.shape[3] // size**2
    shifted = [
        parts[:, i : i + height, j : j + columns, (i * size + j) * width : (i * size + j + 1) * width]
        for i in range(size)
        for j in range(size)
    ]
    return sum(shifted[1:], start=shifted[0])


def _add_forward(parts: jax.Array, size: int) -> tuple[jax.Array, None]:
    return add_shifted(parts, size), None


def _add_backward(size: int, _: None, gradient: jax.Array) -> tuple[jax.Array]:
    padded = [
        jnp.pad(gradient, ((0, 0), (i, size - 1 - i), (j, size - 1 - j), (0, 0)))
        for i in range(size)
        for j in range(size)
    ]
    return (jnp.concatenate(padded, axis=-1),)


add_shifted.defvjp(_add_forward, _add_backward)
