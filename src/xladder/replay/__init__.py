"""Memories, with NumPy twins beside."""
