"""Principals of the services that use roles of the account (AWS General Reference, service principals)."""

LAMBDA = "lambda.amazonaws.com"
PODS = "pods.eks.amazonaws.com"
SCHEDULER = "scheduler.amazonaws.com"
STEP_FUNCTIONS = "states.amazonaws.com"
