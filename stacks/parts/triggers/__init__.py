"""The parts of the triggers stack."""
