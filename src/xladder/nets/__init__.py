"""Networks: Flax modules for one state, with PyTorch twins beside."""
