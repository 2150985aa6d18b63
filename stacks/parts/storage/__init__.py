"""The parts of the storage stack."""
