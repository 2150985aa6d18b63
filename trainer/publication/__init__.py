"""Publication of a run's files: which files there are, which names S3 can hold, and their upload."""
