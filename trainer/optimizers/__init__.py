"""How gradients change the weights."""
