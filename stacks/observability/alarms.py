"""The alarms of a deployment, and the composite alarm for a person on call.

Alarms mail through the deployment's topic. The composite has a topic of its own, which only a pager subscribes to:
readers of the mails would get a second one about the same event.
"""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.observability.alarm_definitions import Definition, Watched, definitions
from stacks.observability.runbooks import link
from stacks.shared.acknowledgements import Reason, acknowledge, in_both_baselines
from trainflow.configuration.deployment import Configuration

COMPOSITE = "a-run-needs-a-person"


class Alarms(Construct):
    """All alarms of a deployment, and the composite alarm that calls a person."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        watched: Watched,
        topic: sns.ITopic,
        pager: sns.ITopic,
    ) -> None:
        super().__init__(scope, construct_id)
        self._configuration = configuration
        self._action, self._pager = actions.SnsAction(topic), actions.SnsAction(pager)
        self.definitions = definitions(configuration, watched)
        self.by_name = {definition.name: self._alarm(definition) for definition in self.definitions}
        self.composite = self._composite()

    def _alarm(self, definition: Definition) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self,
            _pascal(definition.name),
            alarm_name=f"{self._configuration.name}-{definition.name}",
            alarm_description=self._description(definition.meaning, definition.first, definition.anchor),
            metric=definition.metric,
            threshold=definition.threshold,
            comparison_operator=definition.operator,
            evaluation_periods=definition.periods,
            datapoints_to_alarm=definition.breaching,
            treat_missing_data=definition.missing,
        )
        if definition.mails:
            alarm.add_alarm_action(self._action)
        if definition.mails and definition.says_when_over:
            alarm.add_ok_action(self._action)
        if not definition.mails:
            acknowledge(alarm, *in_both_baselines("CloudWatchAlarmAction"), reason=Reason.ANOTHER_TELLS)
        return alarm

    def _composite(self) -> cloudwatch.CompositeAlarm:
        needing = [self.by_name[definition.name] for definition in self.definitions if definition.needs_a_person]
        composite = cloudwatch.CompositeAlarm(
            self,
            _pascal(COMPOSITE),
            composite_alarm_name=f"{self._configuration.name}-{COMPOSITE}",
            alarm_description=self._description(
                "A run stands still, is lost or computes nonsense, or nodes cost money for nothing; it will not pass.",
                "see which of its alarms rings, and open that one's runbook.",
                COMPOSITE,
            ),
            alarm_rule=cloudwatch.AlarmRule.any_of(
                *(cloudwatch.AlarmRule.from_alarm(alarm, cloudwatch.AlarmState.ALARM) for alarm in needing)
            ),
        )
        composite.add_alarm_action(self._pager)
        composite.add_ok_action(self._pager)
        return composite

    def _description(self, meaning: str, first: str, anchor: str) -> str:
        heading = anchor.replace("-", " ").capitalize()
        return f'{meaning} First: {first} Runbook "{heading}": {link(self._configuration, anchor)}'


def _pascal(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))
