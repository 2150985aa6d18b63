"""Backends, which run jobs: one module or folder for each value of `compute.backend`, and their common code."""
