"""What becomes of a job under Slurm, and whether Slurm can run it: pure functions."""
