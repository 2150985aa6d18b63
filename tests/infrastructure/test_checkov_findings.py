"""checkov's findings are accepted one by one, with a reason, and only as long as they are found."""

from __future__ import annotations

from stacks.tools.checkov_findings import Acceptance, CheckovFinding, complaints, parse, read_accepted

FINDING = CheckovFinding("CKV_AWS_18", "access logging", "Storage.template.json", "AccessLogs12")


def accepted(check: str = "CKV_AWS_18", pattern: str = "AccessLogs.*") -> Acceptance:
    return Acceptance(checks=(check,), resources=(pattern,), reason="It holds the logs.")


def test_a_finding_that_is_accepted_is_no_complaint() -> None:
    assert complaints([FINDING], [accepted()]) == []


def test_a_finding_that_is_not_accepted_is_named() -> None:
    assert complaints([FINDING], []) == ["CKV_AWS_18 Storage.template.json AccessLogs12: access logging"]


def test_the_same_rule_on_another_resource_is_not_accepted() -> None:
    other = CheckovFinding("CKV_AWS_18", "access logging", "Storage.template.json", "Data12")
    assert complaints([FINDING, other], [accepted()]) == [str(other)]


def test_an_acceptance_that_nothing_needs_is_a_complaint() -> None:
    (complaint,) = complaints([FINDING], [accepted(), accepted(pattern="Gone.*")])
    assert complaint.endswith("nothing needs CKV_AWS_18 for Gone.* any more; remove it")


def test_the_report_is_read() -> None:
    failed = {"check_id": "C", "check_name": "n", "file_path": "/A.template.json", "resource": "AWS::S3::Bucket.B"}
    assert parse({"results": {"failed_checks": [failed]}}) == [CheckovFinding("C", "n", "A.template.json", "B")]
    assert parse({"passed": 0, "failed": 0}) == []


def test_every_acceptance_gives_a_reason() -> None:
    assert all(len(entry.reason) > 40 for entry in read_accepted())
