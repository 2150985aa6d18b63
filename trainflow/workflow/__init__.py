"""Facts that travel through the state machines or are kept for a run."""
