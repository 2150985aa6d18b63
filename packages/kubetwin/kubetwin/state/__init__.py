"""The objects of the cluster, and the rules for their changes."""
