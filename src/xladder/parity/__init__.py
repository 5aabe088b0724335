"""Parity: a workload and its PyTorch and NumPy twins, compared level by level on the same draws."""
