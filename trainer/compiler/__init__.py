"""Compilation of graphs, and what compilers report about it."""
