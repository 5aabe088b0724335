"""Rungs: execution strategies, which differ in which parts of training are compiled together. One module each."""
