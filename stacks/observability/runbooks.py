"""The runbooks as a dashboard of the deployment. Mails link to it, since the repository is not public."""

from __future__ import annotations

import re
from pathlib import Path

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from trainflow.configuration.deployment import Configuration

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks.md"

WIDTH = 24
"""Columns of a dashboard (CloudWatch)."""

LINES_PER_ROW = 2
"""Lines of Markdown per row of a text widget; a widget that is too low can be scrolled."""


class Runbooks(Construct):
    """A dashboard with a text widget for each section of docs/runbooks.md."""

    def __init__(self, scope: Construct, construct_id: str, *, configuration: Configuration) -> None:
        super().__init__(scope, construct_id)
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=dashboard_name(configuration),
            widgets=[
                [
                    cloudwatch.TextWidget(
                        markdown=text, width=WIDTH, height=max(2, 1 + text.count("\n") // LINES_PER_ROW)
                    )
                ]
                for text in sections(RUNBOOKS.read_text())
            ],
        )


def dashboard_name(configuration: Configuration) -> str:
    """Name of the dashboard with the runbooks."""
    return f"{configuration.name}-runbooks"


def link(configuration: Configuration, anchor: str) -> str:
    """The URL of the runbook for an alarm, which a mail can link.

    A section of a dashboard cannot be linked; its heading is the name of the alarm.
    """
    if configuration.alarms.runbooks_url is not None:
        return f"{configuration.alarms.runbooks_url}#{anchor}"
    region = configuration.region
    console = f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
    return f"{console}#dashboards/dashboard/{dashboard_name(configuration)}"


def sections(page: str) -> list[str]:
    """Split the page at its headings, without links to other files or to other places of the page."""
    parts = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return [re.sub(r"\[([^\]]+)\]\((?!https?://)[^)]+\)", r"\1", part).strip() for part in parts]
