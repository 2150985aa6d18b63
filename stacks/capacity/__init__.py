"""The capacity stack: node groups of training instances."""
