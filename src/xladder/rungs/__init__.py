"""Rungs: where `jit` sits. One file each."""
