"""What Kubernetes objects are: types, selectors, quantities, patches and errors; no I/O but reading the schemas."""
