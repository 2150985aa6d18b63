"""The Slurm stack: controller, nodes, and how the functions reach them."""
