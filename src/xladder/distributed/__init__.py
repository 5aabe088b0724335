"""Training across processes: several hosts of one mesh, and asynchronous actors around one learner."""
