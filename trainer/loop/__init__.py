"""The training loop and what it asks of a task. Nothing here knows what is trained."""
