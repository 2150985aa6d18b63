"""Commands over the templates."""
