"""Learning to tell digits apart: what the two small examples, `trainer.mlp` and `trainer.classifier`, share."""
