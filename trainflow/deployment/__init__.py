"""Names and settings that the stacks, the functions and the client share."""
