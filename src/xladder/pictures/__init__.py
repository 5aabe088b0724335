"""Charts, replays and animations of runs."""
