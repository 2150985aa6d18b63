"""The run spec: its sections, its document, and the sentences about its mistakes."""
