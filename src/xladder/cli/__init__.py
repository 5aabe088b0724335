"""The command line: one small file per command, argument parsing and printing only."""
