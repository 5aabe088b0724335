"""Families of learning problems. Each is a package with its settings, program, host loop, backends and evaluation."""
