"""The twin's AWS: moto in this process, Lambdas in worker processes."""
