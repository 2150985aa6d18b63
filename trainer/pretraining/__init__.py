"""Pretraining of BERT, as a task of the training loop."""
