"""The torso for observations of several parts, such as a camera and the state of the wheels: `by_key`.

Every picture goes through the convolutions that fit its size, with parameters of its own; the numbers of all other
parts go through one dense layer. The features follow one another in that order. Pictures of bytes are divided by 255.
The parts are numbered in the order in which they lie in a frame, as their names may be anything.

Shapes: F frames, E features.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from xladder.families.value.torsos import BYTE, PICTURE_AXES, suited
from xladder.nets.fields import Parts
from xladder.nets.torsos import MinAtarCnn, Mlp, NatureCnn


def _make_twin(shape: Any, width: int) -> Any:
    from xladder.families.value.by_key_torch import ByKey as Twin  # loads PyTorch

    return Twin(shape, width)


class ByKey(nn.Module):
    """Convolutions for pictures, and a dense layer for all other numbers."""

    by_key = True
    torch_twin = staticmethod(_make_twin)
    width: int = 128
    """Of the dense layer."""

    @nn.compact
    def __call__(self, parts: Parts) -> jax.Array:
        """float32 […, E] from parts […, F, *shape]."""
        features, numbers = [], []
        for place, (name, part) in enumerate(parts.items()):
            shape, bright = parts.shapes[name], BYTE if part.dtype == jnp.uint8 else 1
            match suited(shape):
                case "nature":
                    colour = len(shape) == PICTURE_AXES
                    features.append(NatureCnn(colour=colour, max_value=bright, name=f"part_{place}")(part))
                case "minatar":
                    features.append(MinAtarCnn(max_value=bright, name=f"part_{place}")(part))
                case _:
                    lead = part.shape[: part.ndim - len(shape) - 1]
                    numbers.append(part.reshape(*lead, -1).astype(jnp.float32))
        if numbers:
            features.append(Mlp((self.width,), axes=1, name="numbers")(jnp.concatenate(numbers, axis=-1)))
        return jnp.concatenate(features, axis=-1)
