"""Worlds: pure JAX, with NumPy twins beside."""
