"""Shards of pretraining samples, and the order of their samples in training."""
