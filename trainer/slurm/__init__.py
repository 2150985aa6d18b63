"""What runs beside the program in a Slurm job: brings its log, and how it ended, to where the workflow reads them."""
