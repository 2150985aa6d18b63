"""IAM and KMS in the twin: every request is judged against the policies that the account has."""
