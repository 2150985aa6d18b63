"""Backend `slurm`: job script, states, partitions, and the ways to slurmctld and to what its jobs leave in S3."""
