"""What every workload shares: keys, types, and the tick."""
