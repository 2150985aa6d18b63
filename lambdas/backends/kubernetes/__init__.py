"""Common code of the backends that run in a Kubernetes cluster."""
