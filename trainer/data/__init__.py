"""Shards of pretraining samples, and the order in which their samples are trained on."""
