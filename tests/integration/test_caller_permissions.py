"""Callers with exactly the permissions that docs/commands.md lists do what they may, and with one less are told which.

The twin's AWS judges the policies of the caller's role, as IAM and KMS do.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from local.aws.deployment import ARTIFACT_BUCKET
from tests.integration.commands import Answer, Commands, account_of, client_of, until
from tests.integration.test_runs import steps_spec
from trainflow.cli.operate.place import open_deployment_named
from trainflow.page.app import PageApp
from trainflow.page.library import RunLibrary

DOCUMENT = Path(__file__).parents[2] / "docs" / "commands.md"
HERE = "us-west-2:123456789012"
MACHINE = f"arn:aws:states:{HERE}:stateMachine:trainflow-training"
EXECUTIONS = f"arn:aws:states:{HERE}:execution:*"

RESOURCES = {
    "ssm:GetParameter": f"arn:aws:ssm:{HERE}:parameter/trainflow/twin/address",
    "ssm:GetParametersByPath": "*",
    "states:ListExecutions": MACHINE,
    "states:StartExecution": MACHINE,
    "states:DescribeExecution": EXECUTIONS,
    "states:GetExecutionHistory": EXECUTIONS,
    "states:StopExecution": EXECUTIONS,
    "states:DescribeStateMachineForExecution": EXECUTIONS,
    "s3:GetObject": f"arn:aws:s3:::{ARTIFACT_BUCKET}/runs/*",
    "s3:ListBucket": f"arn:aws:s3:::{ARTIFACT_BUCKET}",
    "lambda:InvokeFunction": f"arn:aws:lambda:{HERE}:function:trainflow-SurveyFleet:live",
    "logs:FilterLogEvents": "*",
    "cloudwatch:ListMetrics": "*",
    "cloudwatch:GetMetricData": "*",
}
"""Resources of the actions, which the document names in words."""

EXECUTIONS_KEY, BUCKET_KEY = "key of the executions", "key of the artifact bucket"
"""The keys of `kms:Decrypt`."""

AT_TIMES = ("for code", "without a name", "--parallel")
"""Words of what the commands below do without."""


@dataclass(frozen=True, order=True)
class Permission:
    """An action that the document names."""

    action: str
    key: str = ""
    """Which key, of a `kms:` action."""


def rows() -> list[tuple[set[str], str, str]]:
    """The rows of the document's table: the commands that they name, the first cell, and the second one."""
    table = DOCUMENT.read_text().partition("| for | permission |\n|---|---|\n")[2].partition("\n\n")[0]
    cells = [row.strip().strip("|").split(" | ") for row in table.splitlines()]
    return [(set(re.findall(r"`([^`:]+)`", first)), first, second) for first, second in cells]


def documented(command: str) -> set[Permission]:
    """The permissions of a command without access to the cluster, by all rows that are about it."""
    found: set[Permission] = set()
    for commands, first, second in rows():
        if "access entry" in second or not (command in commands or first.strip() == "every command"):
            continue
        for clause in second.split(";"):
            if any(words in clause for words in AT_TIMES):
                continue
            for listed in re.findall(r"those of ((?:`\w+`(?:, | and )?)+)", clause):
                found = found.union(*(documented(other) for other in re.findall(r"`(\w+)`", listed)))
            key = EXECUTIONS_KEY if "orchestration stack" in clause else BUCKET_KEY
            for action in re.findall(r"`([a-z0-9]+:[A-Za-z]+)`", clause):
                found.add(Permission(action, key if action.startswith("kms:") else ""))
    return found


class InThisProcess(Commands):
    """Commands that follow no run, so that none needs a process of its own."""

    def answer(self, *words: str) -> Answer:
        """See `Commands`."""
        return self._call(*words)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A person with a role of their own, and the runs that they ask about."""

    command: Commands
    owner: Commands
    iam: Any
    keys: dict[str, str]
    new: str
    """A run that goes on."""
    ended: str
    bare: str
    """A run of which the bucket has nothing, as of one that has just begun; this one has ended, and stays so."""

    def may(self, permissions: Iterable[Permission]) -> None:
        """Give the role these permissions and no others."""
        statements = [
            {"Effect": "Allow", "Action": each.action, "Resource": self.keys.get(each.key) or RESOURCES[each.action]}
            for each in sorted(permissions)
        ]
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self.iam.put_role_policy(RoleName="person", PolicyName="own", PolicyDocument=document)


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    folder = tmp_path_factory.mktemp("person")
    for name, arguments in (("new", {"max_steps": 2, "seconds_per_step": 3600.0}), ("ended", {"max_steps": 3})):
        spec = steps_spec(**arguments) | {"name": name}
        spec["compute"] |= {"instance_type": "c7i.xlarge", "num_nodes": 1}
        spec["checkpoint"] = {"path": "state-{step}.json", "resume": ["--load", "{checkpoint}"]}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    here = Commands(folder)
    new = here("run", "new.yaml", "--local", "--detach", "--time-scale", "200").splitlines()[-1]
    try:
        account = account_of(folder, new)
        owner = InThisProcess(folder, account)
        ended, bare = (
            owner("run", "ended.yaml", "--place", "twin", "--detach").splitlines()[-1] for _ in ("ended", "bare")
        )
        client = partial(client_of, account)
        trust = '{"Version": "2012-10-17", "Statement": []}'
        role = client("iam").create_role(RoleName="person", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        assumed = client("sts").assume_role(RoleArn=role, RoleSessionName="me")["Credentials"]
        (rule,) = client("s3").get_bucket_encryption(Bucket=ARTIFACT_BUCKET)["ServerSideEncryptionConfiguration"][
            "Rules"
        ]
        machine = client("stepfunctions").describe_state_machine(stateMachineArn=MACHINE)
        given = {
            "AWS_ACCESS_KEY_ID": assumed["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": assumed["SecretAccessKey"],
            "AWS_SESSION_TOKEN": assumed["SessionToken"],
        }
        s3 = client("s3")
        for run in (ended, bare):
            until(lambda run=run: owner.json("status", run, "--place", "twin")["status"] == "SUCCEEDED")
            kept = {"Bucket": ARTIFACT_BUCKET, "Prefix": f"runs/{run}/"}
            until(lambda kept=kept: f"{kept['Prefix']}report.html" in str(s3.list_objects_v2(**kept)))
        for found in s3.list_objects_v2(Bucket=ARTIFACT_BUCKET, Prefix=f"runs/{bare}/")["Contents"]:
            s3.delete_object(Bucket=ARTIFACT_BUCKET, Key=found["Key"])
        yield Caller(
            command=InThisProcess(folder, account | given),
            owner=owner,
            iam=client("iam"),
            keys={
                EXECUTIONS_KEY: machine["encryptionConfiguration"]["kmsKeyId"],
                BUCKET_KEY: rule["ApplyServerSideEncryptionByDefault"]["KMSMasterKeyID"],
            },
            new=new,
            ended=ended,
            bare=bare,
        )
    finally:
        here("stop", new, "--local")


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A command line, and what it comes to with all permissions."""

    words: tuple[str, ...]
    """NEW, ENDED and BARE stand for the runs."""
    refusal: str = ""
    """What the command is refused with for another reason; empty where it does what it should."""


SITUATIONS: dict[str, list[Situation]] = {
    "list": [Situation(words=("list",))],
    "status": [Situation(words=("status", run)) for run in ("NEW", "ENDED", "BARE")],
    "metrics": [Situation(words=("metrics", run)) for run in ("NEW", "ENDED", "BARE")],
    "logs": [Situation(words=("logs", "ENDED")), Situation(words=("logs", "NEW"), refusal="There is no log group")],
    "costs": [Situation(words=("costs",))],
    "artifacts": [Situation(words=("artifacts", "ENDED", "--pull", "pulled"))],
    "sweep": [Situation(words=("sweep", "--dry-run"))],
    "resume": [
        Situation(words=("resume", "BARE", "--set", "workload.arguments.max_steps=4", "--detach")),
        Situation(words=("resume", "ENDED", "--set", "workload.arguments.max_steps=4", "--detach")),
        Situation(words=("resume", "NEW"), refusal="is still running"),
    ],
    "stop": [Situation(words=("stop", "NEW"))],
}


def answered(caller: Caller, situation: Situation) -> Answer:
    runs = {"NEW": caller.new, "ENDED": caller.ended, "BARE": caller.bare}
    return caller.command.answer(*(runs.get(word, word) for word in situation.words), "--place", "twin")


def assert_refused(answer: Answer, action: str) -> None:
    """One sentence that names the permission, and the status for credentials that do not suffice."""
    assert (answer.status, answer.stdout) == (2, ""), answer
    (sentence,) = answer.stderr.splitlines()
    assert re.match(rf"trainflow: .*These credentials may not call (\S+, or )?{action}\b", sentence), answer


@pytest.mark.parametrize("command", SITUATIONS)
def test_a_command_needs_the_permissions_that_the_document_lists(caller: Caller, command: str) -> None:
    permissions = documented(command)
    assert Permission("ssm:GetParameter") in permissions and len(permissions) > 1

    for missing in sorted(permissions):
        caller.may(permissions - {missing})
        is_missed = False
        for situation in SITUATIONS[command]:
            if is_missed and command == "resume":  # which would start a run that nothing is learned from
                continue
            answer = answered(caller, situation)
            if missing.action in answer.stderr:
                is_missed = True
                if answer.status != 0:  # `logs` says it beside the lines that are kept elsewhere
                    assert_refused(answer, missing.action)
            elif situation.refusal:
                assert situation.refusal in answer.stderr
            else:
                assert answer.status == 0, answer
        assert is_missed, f"{command} does without {missing}"

    caller.may(permissions)
    if command == "stop":  # all others have left the run alone
        started = caller.owner("run", "new.yaml", "--place", "twin", "--detach").splitlines()[-1]
        assert caller.command("stop", started, "--place", "twin") == f"Stopped {started}.\n"
        return
    for situation in SITUATIONS[command]:
        answer = answered(caller, situation)
        if situation.refusal:
            assert (answer.status, situation.refusal in answer.stderr) == (2, True), answer
        else:
            assert answer.status == 0, answer


def test_without_a_name_the_deployments_are_listed(caller: Caller) -> None:
    by_path = Permission("ssm:GetParametersByPath")
    caller.may({*documented("list"), by_path})
    assert caller.new in caller.command("list")
    caller.may(documented("list"))
    assert_refused(caller.command.answer("list"), by_path.action)


def test_the_page_draws_a_runs_own_workflow_and_otherwise_names_the_permission(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn = Permission("states:DescribeStateMachineForExecution")
    own = caller.command.environment
    for name in [name for name in own if name.startswith(("AWS_", "XDG_"))]:
        monkeypatch.setenv(name, own[name])

    def page() -> str:
        with RunLibrary(folder=tmp_path, place=open_deployment_named("twin")) as library:
            answer = TestClient(PageApp(library, form_token="form").asgi).get(f"/runs/{caller.ended}")
        assert answer.status_code == 200, answer.text
        return html.unescape(answer.text)

    assert drawn in documented("ui")
    caller.may(documented("ui"))
    assert 'id="layout-note"' not in page()
    caller.may(documented("ui") - {drawn})
    assert re.search(
        r"The drawing is of this installation's definition\. These credentials may not call "
        rf"{drawn.action}: [^<]+\.</p>",
        page(),
    )
