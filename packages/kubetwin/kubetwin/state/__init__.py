"""What the API server remembers, and the rules by which it changes."""
