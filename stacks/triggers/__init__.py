"""The triggers stack: what starts runs, by schedule and by upload."""
