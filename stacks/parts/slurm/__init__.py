"""The parts of Slurm: its controller, its nodes, and how the functions reach it."""
