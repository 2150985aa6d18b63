"""The objects of the cluster, and the rules by which they change."""
