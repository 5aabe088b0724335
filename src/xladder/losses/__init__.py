"""Losses: pure functions on one transition, with PyTorch twins beside."""
