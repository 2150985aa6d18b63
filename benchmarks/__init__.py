"""Measurements of the project: `python -m benchmarks NAME [--out FILE]`.

A benchmark is a module of this package with a function `run() -> Result`, and a line in `benchmarks/registry.py`.
"""
