"""What runs jobs: one module or folder for each value of `compute.backend`, and what they share."""
