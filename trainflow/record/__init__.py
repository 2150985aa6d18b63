"""The run record: pure functions that make `run.json` from the observations of a run."""
