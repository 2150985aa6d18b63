"""Observing a run from outside, only through the APIs of AWS and Kubernetes."""

# Nothing is imported here: a command that needs the shape of a snapshot alone does not wait for a client of Kubernetes.
