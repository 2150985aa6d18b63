"""The infrastructure: one deployable unit a file."""
