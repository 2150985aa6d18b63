"""Checkpoints: what they hold, when they are written, and which of them a training continues from."""
