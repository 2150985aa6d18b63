"""The parts of the capacity stack."""
