"""Channels of Slack and Microsoft Teams that a deployment's messages go to, beside the mails."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainflow.configuration.section import Section

SLACK_WORKSPACE = r"^[A-Z0-9]{1,255}$"
SLACK_CHANNEL = r"^[A-Za-z0-9]{1,256}$"
UUID = r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
TEAMS_CHANNEL = r"^[-A-Za-z0-9_=+/.,]*%3[aA][-A-Za-z0-9_=+/.,]*%40[-A-Za-z0-9_=+/.,]*$"
"""Patterns of the CloudFormation resource types in `AWS::Chatbot`."""

IN_WORDS = {
    SLACK_WORKSPACE: "must be the id of a workspace, such as T0123ABCD, as the console of Amazon Q Developer in chat "
    "applications shows it",
    SLACK_CHANNEL: "must be the id of a channel, such as C0123ABCD: the end of the channel's link, not its name",
    UUID: "must be a UUID, as the link of the Teams channel has it",
    TEAMS_CHANNEL: "must be the channel's id as its link has it, with %3A and %40",
}


class SlackChannel(Section):
    """A channel of Slack. Its workspace has to be authorized in the account first, by hand and once."""

    workspace_id: Annotated[str, Field(pattern=SLACK_WORKSPACE)]
    """Id of the workspace."""
    channel_id: Annotated[str, Field(pattern=SLACK_CHANNEL)]
    """Id of the channel; a private one has to invite `@Amazon Q`."""


class TeamsChannel(Section):
    """A channel of Microsoft Teams. Its team has to be authorized in the account first, by hand and once."""

    tenant_id: Annotated[str, Field(pattern=UUID)]
    """Id of the tenant: `tenantId` in the channel's link."""
    team_id: Annotated[str, Field(pattern=UUID)]
    """Id of the team: `groupId` in the channel's link."""
    channel_id: Annotated[str, Field(pattern=TEAMS_CHANNEL, max_length=256)]
    """Id of the channel: what the link has behind `/channel/`."""
