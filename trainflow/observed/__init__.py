"""Observed things: one type and one parser for each."""
