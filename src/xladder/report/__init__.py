"""Reports of runs as one HTML file, and the same page live while a run trains."""
