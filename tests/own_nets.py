"""Torsos as a user would bring them, with and without twins in PyTorch."""

import flax.linen as nn
import jax.numpy as jnp
import torch


class Torso(nn.Module):
    """Two layers whose names and order of declaration the twin does not share; and a gate of the same shape."""

    width: int = 12

    @nn.compact
    def __call__(self, state):
        x = state.reshape(*state.shape[:-2], -1)
        x = nn.tanh(nn.Dense(self.width)(x))
        x = nn.LayerNorm(epsilon=1e-5)(x)
        return nn.relu(nn.Dense(self.width)(x)) * nn.sigmoid(nn.Dense(self.width)(x))


class TorsoTorch(torch.nn.Module):
    """The twin of `Torso`."""

    def __init__(self, shape, width):
        super().__init__()
        self.gate = torch.nn.Linear(width, width)
        self.first = torch.nn.Linear(shape[0] * shape[1], width)
        self.second = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, states):
        x = self.norm(torch.tanh(self.first(states.flatten(1))))
        return torch.relu(self.second(x)) * torch.sigmoid(self.gate(x)) * self.scale


class Plain(nn.Module):
    """A torso without a twin."""

    @nn.compact
    def __call__(self, state):
        return nn.relu(nn.Dense(8)(state.reshape(*state.shape[:-2], -1)))


def make_wide():
    """A function that makes a torso."""
    return Torso(width=20)


class WrongShape(Plain):
    """Its twin is wider inside."""


class WrongShapeTorch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.out = torch.nn.Linear(4, 9), torch.nn.Linear(9, 8)

    def forward(self, states):
        return torch.relu(self.out(self.inside(states.flatten(1))))


class Draws(nn.Module):
    """It needs random numbers, which a value network does not have for it."""

    @nn.compact
    def __call__(self, states):
        return nn.Dropout(0.5, deterministic=False)(states.reshape(*states.shape[:-2], -1))


class WrongFeatures(Plain):
    """Its twin has other features."""

    torch_twin = "tests.own_nets:make_linear"


def make_linear():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 9))


class WrongNumbers(Plain):
    """Its twin has the same layers and forgets the ReLU."""

    torch_twin = staticmethod(lambda shape: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(shape[1], 8)))


class Raises(nn.Module):
    """It cannot take CartPole."""

    @nn.compact
    def __call__(self, state):
        return nn.Dense(3)(state.reshape(5, -1))


class Grid(nn.Module):
    """It keeps the axis of frames."""

    @nn.compact
    def __call__(self, state):
        return nn.Dense(3)(state)


class ByKey(nn.Module):
    """It asks for the parts of an observation."""

    by_key = True

    @nn.compact
    def __call__(self, parts):
        near = nn.Dense(6, name="near")(parts["near"].reshape(*parts["near"].shape[:-3], -1))
        far = nn.Dense(6, name="far")(parts["far"].astype(jnp.float32).reshape(*parts["far"].shape[:-2], -1))
        return nn.relu(near + far)


class ByKeyTorch(torch.nn.Module):
    """Its twin."""

    def __init__(self, shape):
        super().__init__()
        frames, rows, columns = shape["near"]
        self.far, self.near = torch.nn.Linear(shape["far"][1] * frames, 6), torch.nn.Linear(frames * rows * columns, 6)

    def forward(self, parts):
        return torch.relu(self.near(parts["near"].flatten(1)) + self.far(parts["far"].flatten(1).float()))


class Gru(nn.Module):
    """A recurrent torso: Flax has one bias where its twin adds two."""

    width: int = 5

    @nn.compact
    def __call__(self, state):
        flat = state.reshape(-1, *state.shape[-2:])
        return nn.RNN(nn.GRUCell(self.width))(flat)[:, -1].reshape(*state.shape[:-2], self.width)


class GruTorch(torch.nn.Module):
    """Its twin."""

    def __init__(self, shape, width):
        super().__init__()
        self.cell = torch.nn.GRU(shape[-1], width, batch_first=True)

    def forward(self, states):
        return self.cell(states)[0][:, -1]


class Attends(Plain):
    """Its twin has a layer that cannot be converted."""


class AttendsTorch(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.m, self.out = torch.nn.MultiheadAttention(shape[1], 1, batch_first=True), torch.nn.Linear(shape[1], 8)

    def forward(self, states):
        return torch.relu(self.out(self.m(states, states, states)[0][:, -1]))


NOT_A_TORSO = 3
