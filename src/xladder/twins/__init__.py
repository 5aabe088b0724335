"""Twins: a PyTorch and a Flax module of the same network. Matches their layers and converts their parameters."""
