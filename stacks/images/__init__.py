"""The images stack: repositories in ECR and the builds that fill them."""
