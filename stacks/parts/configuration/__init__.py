"""Sections of the configuration that are a matter of their own."""
