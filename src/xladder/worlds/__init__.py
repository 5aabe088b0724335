"""Environments: JAX worlds with NumPy twins, and adapters for gymnax, JaxMARL, Gymnasium, PettingZoo and ale-py."""
