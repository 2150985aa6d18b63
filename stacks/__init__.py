"""The infrastructure: one folder for each stack, and `shared` for what several stacks use."""
