"""A real Slurm on this machine: Debian's daemons with several virtual nodes, on loopback, without a system service."""
