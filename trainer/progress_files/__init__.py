"""Steps in the files that other people's programs write; the standard library alone."""
