"""Could this run start at all? Every module judges the facts of one side and names what it finds."""
