"""Slurm's commands over Systems Manager: what is run, and what its output means."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from lambdas.backends.slurm import ssm as slurm_ssm
from lambdas.backends.slurm.forms import comment_form
from lambdas.backends.slurm.ssm import MAX_CHARACTERS, SsmController
from tests.unit.lambdas.test_slurm_forms import COMMENT, JOB
from tests.wording import wording
from trainflow.deployment.slurm import Partition, SlurmJob
from trainflow.errors import ClusterUnavailable, JobRefused, ServiceUnavailable

HEAD_NODE = "i-0123456789abcdef0"


class Ssm:
    """The client with answers in advance, and the commands that were sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        credentials = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        self.client = boto3.client("ssm", region_name="us-west-2", **credentials)
        self.stubber = Stubber(self.client)
        self.sent: list[str] = []
        self.client.meta.events.register(
            "provide-client-params.ssm.SendCommand",
            lambda params, **_: self.sent.append(params["Parameters"]["commands"][0]),
        )
        monkeypatch.setattr(slurm_ssm, "client", lambda _: self.client)
        monkeypatch.setattr(slurm_ssm, "POLL_SECONDS", 0.0)

    def answer(self, status: str, *, output: str = "", error: str = "") -> None:
        self.stubber.add_response(
            "send_command",
            {"Command": {"CommandId": "c" * 36}},
            {"InstanceIds": [HEAD_NODE], "DocumentName": "AWS-RunShellScript", "Parameters": ANY},
        )
        self.stubber.add_client_error("get_command_invocation", "InvocationDoesNotExist")
        for state in ("InProgress", status):
            found: dict[str, Any] = {
                "Status": state,
                "StandardOutputContent": output,
                "StandardErrorContent": error,
            }
            self.stubber.add_response("get_command_invocation", found)

    def shell_command(self) -> str:
        """What the user's login shell was given."""
        words = shlex.split(self.sent[-1])
        assert words[:6] == ["runuser", "-u", "trainer", "--", "bash", "-lc"]
        return words[6]


def packed(output: str) -> str:
    """Output as a shell packs it."""
    return base64.b64encode(gzip.compress(output.encode())).decode()


@pytest.fixture
def ssm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ssm]:
    found = Ssm(monkeypatch)
    with found.stubber:
        yield found
        found.stubber.assert_no_pending_responses()


@pytest.fixture
def slurm(ssm: Ssm) -> SsmController:
    return SsmController(HEAD_NODE, user="trainer")


def test_a_job_is_submitted_with_sbatch_and_its_script_unread(slurm: SsmController, ssm: Ssm) -> None:
    ssm.answer("Success", output="12\n")
    slurm.submit(JOB, after=[7])
    found = re.fullmatch(r"echo (\S+) \| base64 -d \| (sbatch .*)", ssm.shell_command())
    assert found is not None
    assert base64.b64decode(found[1]).decode() == JOB.script
    assert shlex.split(found[2]) == [
        *("sbatch", "--parsable", "--no-requeue", "--exclusive"),
        *("--job-name=bert-0123456789ab-training-1", f"--comment={comment_form(COMMENT)}", "--nodes=2"),
        *("--ntasks-per-node=1", "--propagate=NONE", "--time=90", "--signal=TERM@120"),
        *("--dependency=singleton,afterany:7", "--mem=0"),
        *("--chdir=/tmp", "--output=/dev/null", "--export=NONE", "--partition=trn1"),
    ]


def test_a_refusal_of_sbatch_is_reported_with_its_message(slurm: SsmController, ssm: Ssm) -> None:
    ssm.answer("Failed", error="sbatch: error: invalid partition specified: trn1\n")
    with pytest.raises(JobRefused) as refused:
        slurm.submit(JOB, after=[])
    assert str(refused.value) == (
        wording("slurm_ssm.a_refusal_of_sbatch_is_reported_with_its_message", "'bert-0123456789ab-training-1'")
    )


def test_a_small_job_shares_its_node_with_as_much_memory_as_it_needs(slurm: SsmController, ssm: Ssm) -> None:
    ssm.answer("Success", output="12\n")
    small = replace(JOB, partition=None, exclusive=False, memory_mib=2048, avoided_nodes=("n1", "n2"))
    slurm.submit(small, after=[])
    words = shlex.split(ssm.shell_command().partition(" | base64 -d | ")[2])
    assert words[:3] == ["sbatch", "--parsable", "--no-requeue"]
    assert {"--mem=2048M", "--exclude=n1,n2", "--dependency=singleton"} <= set(words)
    assert not [word for word in words if word.startswith(("--partition", "--exclusive"))]


def test_a_controller_that_does_not_answer_sbatch_is_worth_a_retry(slurm: SsmController, ssm: Ssm) -> None:
    said = "sbatch: error: Batch job submission failed: Unable to contact slurm controller"
    ssm.answer("Failed", error=f"a line before\n{said}.\n")
    with pytest.raises(ClusterUnavailable) as failed:
        slurm.submit(JOB, after=[])
    assert str(failed.value) == f"Slurm's commands on {HEAD_NODE} did not answer: {said}."


def test_a_job_is_cancelled_with_scancel(slurm: SsmController, ssm: Ssm) -> None:
    ssm.answer("Success")
    slurm.cancel(12)
    assert ssm.shell_command() == "scancel --quiet 12"
    ssm.answer("Failed")
    with pytest.raises(ClusterUnavailable) as failed:
        slurm.cancel(12)
    assert str(failed.value) == f"Slurm's commands on {HEAD_NODE} did not answer: it said nothing."


def test_the_queue_is_read_line_by_line(slurm: SsmController, ssm: Ssm) -> None:
    times = "2026-11-21T12:00:00|2026-11-21T12:01:00|N/A"
    ssm.answer(
        "Success",
        output="Welcome to the head node.\n"
        + packed(
            f"12|bert-0123456789ab-training-1|trainer|RUNNING|n[0-1]|{times}|None|{comment_form(COMMENT)}\n"
            "13|wrap|trainer|PENDING||2026-11-21T12:00:00|N/A|N/A|Priority|(null)\n"
        ),
    )
    ours, other = slurm.jobs()
    command, *_packing = ssm.shell_command().removeprefix("set -o pipefail; ").split(" | ")
    assert shlex.split(command)[:-1] == [
        *("TZ=UTC", "SLURM_TIME_FORMAT=standard", "squeue", "--noheader", "--states=all", "--user=trainer")
    ]
    assert ours == SlurmJob(
        job_id=12,
        name="bert-0123456789ab-training-1",
        user="trainer",
        states=frozenset({"RUNNING"}),
        comment=COMMENT,
        nodes="n[0-1]",
        submitted_at=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
        started_at=datetime(2026, 11, 21, 12, 1, tzinfo=UTC),
    )
    assert (other.comment, other.reason, other.states) == (None, "Priority", frozenset({"PENDING"}))


def queue_of(num_jobs: int) -> str:
    """Jobs of as many runs, with names and hashes that differ as real ones do."""
    dice, lines = random.Random(0), []
    for number in range(num_jobs):
        run_id = f"bert-{dice.randbytes(6).hex()}"
        comment = replace(COMMENT, run_id=run_id, spec_hash=dice.randbytes(8).hex())
        times = f"2026-11-21T12:{number % 60:02}:00|2026-11-21T13:{number % 60:02}:00|N/A"
        lines.append(f"{number}|{run_id}-training-1|trainer|RUNNING|n[0-1]|{times}|None|{comment_form(comment)}\n")
    return "".join(lines)


def test_a_queue_of_some_hundred_jobs_comes_whole(slurm: SsmController, ssm: Ssm) -> None:
    output = packed(queue_of(400))
    assert len(output) < MAX_CHARACTERS < len(queue_of(120))
    ssm.answer("Success", output=output)
    assert len(slurm.jobs()) == 400


@pytest.mark.parametrize("cut_off", [MAX_CHARACTERS, MAX_CHARACTERS - 1, 4, 0])
def test_a_queue_that_was_cut_off_is_no_shorter_queue(slurm: SsmController, ssm: Ssm, cut_off: int) -> None:
    ssm.answer("Success", output=packed(queue_of(1000))[:cut_off])
    with pytest.raises(ClusterUnavailable) as failed:
        slurm.jobs()
    assert str(failed.value) == (
        f"Slurm's commands on {HEAD_NODE} did not answer: the queue is longer than Systems Manager's 24,000 characters "
        "hold; use slurmrestd: its address in SLURM_API_URL."
    )


def test_bytes_that_are_no_text_do_not_hide_the_queue(slurm: SsmController, ssm: Ssm) -> None:
    line = b"12|caf\xe9|trainer|PENDING||N/A|N/A|N/A|None|(null)\n"
    ssm.answer("Success", output=base64.b64encode(gzip.compress(line)).decode())
    assert [job.name for job in slurm.jobs()] == ["caf\ufffd"]


@pytest.mark.parametrize(
    "text", ["it's", '"', "$(touch pwned)", "`touch pwned`", "a\nb", "; exit 7", "$PATH", "*", "\\"]
)
def test_every_name_of_a_job_reaches_sbatch_unchanged(slurm: SsmController, ssm: Ssm, text: str) -> None:
    comment = replace(COMMENT, run_id=text)
    ssm.answer("Success", output="12\n")
    slurm.submit(replace(JOB, name=text, partition=text, comment=comment), after=[])
    words = shlex.split(ssm.shell_command().partition(" | base64 -d | ")[2])
    options = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)
    assert (options["job-name"], options["partition"]) == (text, text)
    assert json.loads(options["comment"])["run_id"] == text


def test_a_job_that_slurm_has_forgotten_is_none(slurm: SsmController, ssm: Ssm) -> None:
    ssm.answer("Failed", error="slurm_load_jobs error: Invalid job id specified\n")
    assert slurm.job(12) is None
    assert " --states=all --jobs=12 " in ssm.shell_command()


@pytest.mark.parametrize("error", ["slurm_load_jobs error: Invalid job id specified", "slurm_load_jobs error: down"])
def test_a_queue_that_could_not_be_read_is_not_an_empty_one(slurm: SsmController, ssm: Ssm, error: str) -> None:
    ssm.answer("Failed", error=error)
    with pytest.raises(ClusterUnavailable, match=error):
        slurm.jobs()


def test_one_job_that_could_not_be_asked_for_is_not_forgotten(slurm: SsmController, ssm: Ssm) -> None:
    ssm.answer("Failed", error="slurm_load_jobs error: Unable to contact slurm controller\n")
    with pytest.raises(ClusterUnavailable, match="Unable to contact slurm controller"):
        slurm.job(12)


def test_a_job_of_an_array_and_one_that_has_ended_are_read_and_no_other_line(slurm: SsmController, ssm: Ssm) -> None:
    times = "2026-11-21T12:00:00|2026-11-21T12:01:00|2026-11-21T12:02:00"
    ssm.answer(
        "Success",
        output=packed(f"squeue: a warning\n12_3|a|trainer|CANCELLED by 1001|n0|{times}|NodeDown|(null)\n"),
    )
    assert slurm.job(12) == SlurmJob(
        job_id=12,
        name="a",
        user="trainer",
        states=frozenset({"CANCELLED"}),
        comment=None,
        reason="NodeDown",
        nodes="n0",
        submitted_at=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
        started_at=datetime(2026, 11, 21, 12, 1, tzinfo=UTC),
        ended_at=datetime(2026, 11, 21, 12, 2, tzinfo=UTC),
    )


def test_a_comment_may_hold_what_separates_the_columns(slurm: SsmController, ssm: Ssm) -> None:
    comment = replace(COMMENT, run_id="a|b")
    ssm.answer("Success", output=packed(f"12|a|trainer|PENDING||N/A|N/A|N/A|None|{comment_form(comment)}\n"))
    (job,) = slurm.jobs()
    assert (job.comment, job.submitted_at) == (comment, None)


def test_a_partition_is_read_from_scontrol(slurm: SsmController, ssm: Ssm) -> None:
    ssm.answer(
        "Success",
        output="PartitionName=trn1 AllowGroups=ALL Default=NO MaxNodes=UNLIMITED MaxTime=2-00:30:00 State=UP "
        "TotalCPUs=256 TotalNodes=2 MaxMemPerNode=UNLIMITED\n",
    )
    assert slurm.partition("trn1") == Partition(name="trn1", num_nodes=2, max_minutes=2910)
    assert ssm.shell_command() == "scontrol --oneliner show partition trn1"
    ssm.answer("Success", output="PartitionName=a;b MaxNodes=3 MaxTime=UNLIMITED State=DOWN TotalNodes=4\n")
    assert slurm.partition("a;b") == Partition(name="a;b", num_nodes=4, max_nodes_per_job=3, is_up=False)
    assert ssm.shell_command() == "scontrol --oneliner show partition 'a;b'"


def test_the_default_partition_is_among_all_of_them(slurm: SsmController, ssm: Ssm) -> None:
    rest = "MaxNodes=UNLIMITED MaxTime=UNLIMITED State=UP TotalNodes=2"
    lines = [f"PartitionName={name} {rest}\n" for name in ("a Default=NO", "b Default=YES")]
    ssm.answer("Success", output=packed("".join(lines)))
    assert slurm.partitions() == [
        Partition(name="a", num_nodes=2),
        Partition(name="b", num_nodes=2, is_default=True),
    ]


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("00:30:00", 30), ("12:05:59", 725), ("1-00:00:00", 1440), ("2-03:04:05", 3064), ("UNLIMITED", None)],
)
def test_a_time_limit_is_read_in_minutes(text: str, minutes: int | None) -> None:
    assert slurm_ssm._minutes(text) == minutes


def test_an_unknown_partition_is_none(slurm: SsmController, ssm: Ssm) -> None:
    ssm.answer("Failed", output="Partition nope not found\n")
    assert slurm.partition("nope") is None


def test_partitions_that_could_not_be_asked_for_are_not_missing(slurm: SsmController, ssm: Ssm) -> None:
    for ask in (lambda: slurm.partition("trn1"), slurm.partitions):
        ssm.answer("Failed", output="slurm_load_partitions: Unable to contact slurm controller\n")
        with pytest.raises(ClusterUnavailable, match="did not answer: slurm_load_partitions: "):
            ask()


def test_an_answer_in_another_form_is_worth_a_retry_and_named(slurm: SsmController, ssm: Ssm) -> None:
    ssm.answer("Success", output="PartitionName=trn1\n")
    with pytest.raises(ClusterUnavailable) as failed:
        slurm.partition("trn1")
    assert str(failed.value) == (
        f"A command of Slurm's on {HEAD_NODE} gave an answer that is not in a known form (KeyError: 'TotalNodes'); "
        "check that nothing but Slurm answers there."
    )


@pytest.mark.parametrize(("output", "user"), [("CANCELLED by 1001|\n", "uid 1001"), ("COMPLETED|\n", None)])
def test_accounting_names_the_user_who_cancelled(slurm: SsmController, ssm: Ssm, output: str, user: str | None) -> None:
    ssm.answer("Success", output=output)
    assert slurm.cancelled_by(12) == user
    assert ssm.shell_command() == "sacct --noheader --parsable2 --allocations --jobs=12 --format=State%60"
    ssm.answer("Failed", output=output)
    assert slurm.cancelled_by(12) is None


def test_a_throttled_command_is_worth_a_retry_and_named_as_iam_names_it(slurm: SsmController, ssm: Ssm) -> None:
    ssm.stubber.add_client_error("send_command", "ThrottlingException")
    with pytest.raises(ServiceUnavailable, match=r"^ssm:SendCommand .*ThrottlingException"):
        slurm.cancel(12)


def test_a_head_node_that_does_not_run_commands_is_worth_a_retry(
    slurm: SsmController, ssm: Ssm, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssm.stubber.add_response("send_command", {"Command": {"CommandId": "c" * 36}})
    monkeypatch.setattr(slurm_ssm, "LONGEST_SECONDS", 0.0)
    with pytest.raises(ClusterUnavailable) as failed:
        slurm.cancel(12)
    assert str(failed.value) == f"Slurm's commands on {HEAD_NODE} did not answer: no answer in 0 seconds."
