"""Sweeps over hyperparameters: many trials, each on several seeds, trained together as one program."""
