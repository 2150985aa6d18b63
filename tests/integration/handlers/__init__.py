"""Small Lambda handlers for the tests of the twin's Lambda runtime."""
