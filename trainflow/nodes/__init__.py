"""Instance types and nodes: what they offer, cost and keep for themselves, and which of them failed."""
