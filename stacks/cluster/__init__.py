"""The cluster stack: EKS, its add-ons, charts and identities."""
