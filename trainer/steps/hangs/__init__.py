"""Stacks of the ranks of a node that stand still (docs/decisions/0095-evidence-of-a-hang.md)."""
