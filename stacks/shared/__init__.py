"""Parts that several stacks use."""
