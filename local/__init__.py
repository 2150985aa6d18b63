"""The twin: AWS and Kubernetes on one machine. State machines, Lambda functions and the trainer run in it unchanged."""
