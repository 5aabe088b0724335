"""Charts, videos of episodes, and animations of runs."""
