"""Shared by every workload: random keys, types, schedules and state."""
