"""Rows of metrics as words keep every bit."""

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import words


def test_rows_come_back_bit_for_bit():
    nan = np.array([0x7FC00123, 0xFF800000], np.uint32).view(np.float32)  # a nan with a payload, and −∞
    row = {
        "loss": jnp.asarray(nan),
        "events": jnp.arange(-3, 3, dtype=jnp.int32).reshape(2, 3),
        "none": jnp.zeros((2, 0)),
    }
    rows = jnp.stack([words.pack(row), words.pack(jax.tree.map(lambda x: x + 1, row))])
    assert rows.shape == (2, words.width(row))
    back = words.unpack(rows, row)
    assert np.array_equal(np.asarray(back["loss"][0]).view(np.uint32), nan.view(np.uint32))
    assert np.array_equal(back["events"][1], row["events"] + 1)
    assert back["none"].shape == (2, 2, 0)
