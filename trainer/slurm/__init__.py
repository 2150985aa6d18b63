"""Programs that run beside the training in a Slurm job: they bring its log and the record of its end to S3, where the
workflow reads them."""
