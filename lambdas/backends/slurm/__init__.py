"""Backend `slurm`: job script, states, partitions, the connections to slurmctld, and its jobs' files in S3."""
