"""Classification of digits: code that the two small examples, `trainer.mlp` and `trainer.classifier`, share."""
