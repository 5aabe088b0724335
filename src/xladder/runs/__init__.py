"""The run directory: metrics, saved agents, pictures."""
