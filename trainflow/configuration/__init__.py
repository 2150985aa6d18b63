"""The configuration of one deployment, as the stacks and the check of an account read it."""
