"""Runs seen from outside: where they execute, how they are observed, and what is written of them. No terminal here."""
