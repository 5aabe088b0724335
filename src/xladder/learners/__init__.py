"""Learners: `init`, `act`, `update` for one agent, with PyTorch twins."""
