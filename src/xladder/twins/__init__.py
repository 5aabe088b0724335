"""Twins: a PyTorch module and a Flax module that are meant to be one network. Which layers belong together, and how."""
