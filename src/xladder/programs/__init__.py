"""Programs: what one tick of a workload is, as pure functions for XLA and as a loop for the host."""
