"""The packs of rules that auditors know, which cdk-nag brings; our own rules are beside this module."""

from __future__ import annotations

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks, HIPAASecurityChecks, NIST80053R5Checks, ServerlessChecks

PACKS = ("AwsSolutions", "Serverless", "NIST.800.53.R5", "HIPAA.Security")
"""Names in the validation report, and of the rules' beginnings."""


def packs(app: cdk.App) -> list[cdk.IPolicyValidationPlugin]:
    """The packs as plugins of a synthesis."""
    return [AwsSolutionsChecks(app), ServerlessChecks(app), NIST80053R5Checks(app), HIPAASecurityChecks(app)]
