"""Checks whether a run can start. Each module judges the facts of one area and returns its findings."""
