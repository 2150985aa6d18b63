"""The parts of the cluster stack."""
