"""The training loop and its interface to a task. The loop does not depend on what is trained."""
