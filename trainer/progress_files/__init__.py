"""Steps in the files that other people's programs write. Imports only the standard library."""
