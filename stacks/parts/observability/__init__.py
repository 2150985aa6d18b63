"""The parts of the observability stack."""
