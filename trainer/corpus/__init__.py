"""Shards for pretraining out of text: `python -m trainer.corpus --out FILE.tar [--text FILE …]`."""
