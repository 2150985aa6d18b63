"""What the backends that run in a Kubernetes cluster share."""
