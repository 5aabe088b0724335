"""Workloads: the published settings, as typed Python that imports nothing heavy."""
