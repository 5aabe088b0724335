"""A custom PyTorch network, its Flax twin, and the first steps of a migration: compare, convert, train in JAX.

The network reads short sequences of symbols: an embedding, a convolution, a GRU and two heads, none of which are in
xladder's own networks. It learns to count the different symbols and to name the last one. Run it from any folder:

    python examples/own_network.py
"""

import flax.linen as fnn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch import nn
from torch.nn import functional

from xladder import bridge, hybrid, parity

SYMBOLS, LENGTH = 6, 8


class Reader(nn.Module):
    """The existing network in PyTorch."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, 16)
        self.conv = nn.Conv1d(16, 24, 3, padding=1)
        self.gru = nn.GRU(24, 32, batch_first=True)
        self.count = nn.Linear(32, 1)
        self.last = nn.Linear(32, SYMBOLS)

    def forward(self, words):
        """[words, 1] and [words, symbols] from integers [words, length]."""
        x = self.embedding(words)
        x = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)  # PyTorch has channels before places
        x = self.gru(x)[0][:, -1]
        return self.count(x), self.last(x)


class FlaxReader(fnn.Module):
    """Its twin in Flax."""

    @fnn.compact
    def __call__(self, words):
        """[words, 1] and [words, symbols] from integers [words, length]."""
        x = fnn.Embed(SYMBOLS, 16)(words)
        x = fnn.relu(fnn.Conv(24, (3,))(x))  # Flax has channels last
        x = fnn.RNN(fnn.GRUCell(32))(x)[:, -1]
        return fnn.Dense(1)(x), fnn.Dense(SYMBOLS)(x)


def torch_loss(net, batch):
    """The existing loss in PyTorch."""
    count, last = net(batch["words"])
    return functional.mse_loss(count, batch["counts"]) + functional.cross_entropy(last, batch["words"][:, -1])


def jax_loss(net, batch):
    """The same in JAX; `net` is called like the PyTorch module."""
    count, last = net(batch["words"])
    wrong = optax.softmax_cross_entropy_with_integer_labels(last, batch["words"][:, -1])
    return jnp.mean((count - batch["counts"]) ** 2) + jnp.mean(wrong)


def draw(rng, size=32):
    """Random words, and the number of different symbols in each."""
    words = rng.integers(0, SYMBOLS, (size, LENGTH))
    return {"words": words, "counts": np.float32([[len(set(word))] for word in words.tolist()])}


def main():
    """Compare, convert, train."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    net, twin, batch = Reader(), FlaxReader(), draw(rng)

    print("Is it the same network, loss and optimiser?\n")
    adam, losses = ("adam", 3e-3), (torch_loss, jax_loss)
    report = parity.check(net, twin, batch["words"], losses, adam, batch=batch, updates=10)
    print(report)
    print(f"\nWhich layers belong together:\n\n{report.match}")

    params = bridge.convert(net, twin, batch["words"])
    print(f"\nConverted: {sum(x.size for x in jax.tree.leaves(params))} numbers in Flax.")

    print("\nPyTorch acts, JAX computes the gradient step:")
    trainer = hybrid.JaxStep(net, twin, jax_loss, adam, inputs=batch["words"])
    for step in range(201):
        loss = trainer.step(draw(rng))
        if step % 100 == 0:
            words = torch.from_numpy(draw(rng, 500)["words"])
            right = (net(words)[1].argmax(1) == words[:, -1]).float().mean()
            print(f"  step {step:3d}: loss {loss:.3f}; PyTorch's network names the last symbol in {right:.0%} of words")


if __name__ == "__main__":
    main()
