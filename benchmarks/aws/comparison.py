"""Judges how an answer differs from the recorded one, and counts the tests of each area."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

TESTS = "tests/aws/services"


@dataclass(frozen=True, kw_only=True)
class Area:
    """Tests that are counted together."""

    name: str
    files: tuple[str, ...]
    """Files and folders below `TESTS`."""
    inapplicable: Mapping[str, str]
    """Reasons why tests do not apply, by a regular expression that finds them."""


JSONATA_REASON = "JSONata, which the twin refuses"
JSONATA = {r"jsonata|query_language|/(arguments|outputdecl)/": JSONATA_REASON}
OTHER_FEATURES = {
    r"distributed|item_reader|item_batcher|result_writer|map_run|csv|jsonl|parquet|max_items": "distributed Map",
    r"alias": "aliases of state machines",
    r"tag(s|ging|_)": "tags",
    r"/test_state/": "TestState",
    r"express|sync_execution": "Express workflows",
    r"activit": "activities",
    r"/logs/|api_logs": "logs of executions",
    r"validate_state_machine|/validation/": "ValidateStateMachineDefinition",
    r"apigateway|api_gateway|_ecs_|_batch|glue|athena|http_|invalid_secret_name|_sns_": (
        "a service that the product's texts do not call"
    ),
    r"cross_account|cross_region|cfn|cloudformation|test_sfn_scenarios": "other accounts and CloudFormation",
    r"local_mock": "mocked integrations",
}

AREAS = (
    Area(name="Step Functions", files=("stepfunctions/v2",), inapplicable={**JSONATA, **OTHER_FEATURES}),
    Area(name="EventBridge patterns", files=("events/test_events_patterns.py",), inapplicable={}),
    Area(name="EventBridge inputs", files=("events/test_events_inputs.py",), inapplicable={}),
    Area(name="S3 events", files=("s3/test_s3_notifications_eventbridge.py",), inapplicable={}),
    Area(
        name="Scheduler",
        files=("scheduler/test_scheduler.py",),
        inapplicable={r"tag|cloudformation": "tags and CloudFormation"},
    ),
    Area(
        name="SQS",
        files=("sqs/test_sqs.py",),
        inapplicable={
            r"tag": "tags",
            r"sqs_query": "the query protocol, which no client of the product speaks",
            r"fifo|dedup|message_group": "FIFO queues, which the product lacks",
            r"endpoint|url_|_url|raw|query_api|json_protocol|presigned|get_without|overwritten|TestSqsQueryApi": (
                "the raw protocol and its hosts"
            ),
            r"move_task|fair|cloudformation|cors|permission": "a feature that the product does not use",
        },
    ),
    Area(
        name="SQS to Lambda",
        files=("lambda_/event_source_mapping/test_lambda_integration_sqs.py",),
        inapplicable={r"filter": "filters of mappings", r"fifo": "FIFO queues as sources"},
    ),
)


class Verdict(StrEnum):
    """The judgement of a test."""

    SAME = "same"
    COSMETIC = "cosmetic"
    DIFFERS = "differs"
    NOT_APPLICABLE = "not applicable"


COSMETIC = tuple(
    re.compile(pattern)
    for pattern in (
        r"/(cause|Cause|Message|MessageRaw|message|errorMessage)$",  # texts for people
        r"/ChecksumType$",
        r"/[rR]edrive\w*$",
        r"/(in|out)putDetails(/|$)|/(In|Out)putDetails(/|$)",
        r"/previousEventId$",
        r"/(variableReferences|encryptionConfiguration|includeExecutionData|revisionId)(/|$)",
        r"/ResponseMetadata(/|$)",
        r"/Error/(QueryErrorCode|Detail|Type)$",  # beside the code
        r"mapping[\w-]*/(State|StateTransitionReason|MaximumBatchingWindowInSeconds|FunctionResponseTypes)$",
        r"/stackTrace(/|$)",
        r"/Sdk(Http|Response)Metadata(/|$)",  # headers of the answer of an integrated service
    )
)
"""Places whose differences change no program's way."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A test and its judgement."""

    test: str
    verdict: Verdict
    reason: str = ""
    """The first difference that matters, or the reason why the test does not apply."""


def judge(line: Mapping[str, Any], area: Area) -> Judged:
    """Judge one line of `recorded_tests`."""
    test = str(line["test"])
    if reason := _inapplicable(line, area):
        return Judged(test=test, verdict=Verdict.NOT_APPLICABLE, reason=reason)
    if line["outcome"] == "passed":
        return Judged(test=test, verdict=Verdict.SAME)
    differences = line.get("differences", [])
    matters = [
        one for one in differences if not one.get("same_json") and not any(p.search(one["path"]) for p in COSMETIC)
    ]
    if differences and not matters:
        return Judged(test=test, verdict=Verdict.COSMETIC, reason=differences[0]["path"])
    return Judged(test=test, verdict=Verdict.DIFFERS, reason=_shown(matters[0]) if matters else line.get("error", ""))


def _inapplicable(line: Mapping[str, Any], area: Area) -> str:
    for pattern, reason in area.inapplicable.items():
        if re.search(pattern, line["test"], re.IGNORECASE):
            return reason
    if "No state for" in line.get("error", ""):
        return "recorded under another name"
    if "The twin executes JSONPath only" in line.get("error", ""):
        return JSONATA_REASON
    if line["outcome"] == "skipped":
        return "skipped by its authors"
    if not {"aws_validated", "aws_manual_setup_required"} & set(line["marks"]):
        return "not recorded on AWS"
    return ""


def _shown(difference: Mapping[str, Any]) -> str:
    return f"{difference['path']}: {difference['recorded']} on AWS, here {difference['answered']}"


def table(judged: Mapping[str, Iterable[Judged]]) -> str:
    """The counts by area, as Markdown, and the reasons why tests do not apply."""
    head = ("area", "tests", "apply", *(verdict.value for verdict in Verdict if verdict is not Verdict.NOT_APPLICABLE))
    rows = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    reasons: Counter[str] = Counter()
    for name, found in judged.items():
        each = list(found)
        counts = Counter(one.verdict for one in each)
        reasons.update(one.reason for one in each if one.verdict is Verdict.NOT_APPLICABLE)
        applies = len(each) - counts[Verdict.NOT_APPLICABLE]
        cells = (counts[Verdict.SAME], counts[Verdict.COSMETIC], counts[Verdict.DIFFERS])
        rows.append(f"| {name} | {len(each)} | {applies} | {' | '.join(map(str, cells))} |")
    listed = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
    return "\n".join([*rows, "", f"Not applicable: {listed or 'none'}."])
