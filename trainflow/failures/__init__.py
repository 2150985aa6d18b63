"""Judging why a job failed, by evidence: one table, and pure functions that read it."""
