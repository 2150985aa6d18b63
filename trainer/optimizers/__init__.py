"""Optimizers: how gradients change the weights."""
