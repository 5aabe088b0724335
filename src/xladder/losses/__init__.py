"""Losses: pure functions on one transition or one trajectory, with PyTorch twins beside."""
