"""Manifests: pure functions from a job to the Kubernetes objects that run it. One module a backend."""
