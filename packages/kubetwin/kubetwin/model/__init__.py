"""The model of Kubernetes objects: types, selectors, quantities, patches and errors; no I/O but reading the schemas."""
