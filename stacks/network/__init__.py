"""The network stack: VPC, subnets, endpoints and flow logs."""
