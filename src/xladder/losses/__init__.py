"""Losses: pure functions of one transition or one trajectory, with PyTorch twins."""
