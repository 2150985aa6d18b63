"""The HTTP side of the API server."""
