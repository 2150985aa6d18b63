"""Slurm's own commands, run on a machine that has them through AWS Systems Manager: for clusters without slurmrestd.

`SLURM_API_URL` is `ssm://<instance id>` then, of ParallelCluster's head node as a rule.
"""

from __future__ import annotations

import base64
import gzip
import re
import shlex
import time
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime

from lambdas.backends.slurm.forms import comment_form, dependency, parse_comment, understood
from lambdas.gateways.aws import client, translated
from trainflow.deployment.slurm import Partition, SlurmJob, Submission
from trainflow.errors import ClusterUnavailable, JobRefused

SCHEME = "ssm://"

DOCUMENT = "AWS-RunShellScript"

POLL_SECONDS = 0.5
LONGEST_SECONDS = 40.0
"""Longest time of a command: less than the functions' time limit."""

RUNNING = ("Pending", "InProgress", "Delayed", "Cancelling")
"""States of a command that has not ended (SSM, GetCommandInvocation)."""

COLUMNS = "%i|%j|%u|%T|%N|%V|%S|%e|%r|%k"
"""Format of `squeue`: id, name, user, state, nodes, submitted, started, ended, reason, comment."""

MAX_CHARACTERS = 24_000
"""Output of a command that Systems Manager passes on (GetCommandInvocation); it cuts off the rest."""

UNREACHED = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Connection refused",
)
"""Parts of the messages of Slurm's commands when slurmctld does not answer, or its answer got lost."""

NONE = ("", "N/A", "Unknown", "None", "UNLIMITED")


class SsmController:
    """slurmctld behind `sbatch`, `squeue`, `scancel` and `scontrol`. Implements `Controller`."""

    def __init__(self, instance_id: str, *, user: str) -> None:
        self._instance_id, self._user = instance_id, user

    def submit(self, job: Submission, *, after: Sequence[int]) -> None:
        """The script travels in base64: no shell on the way reads it."""
        script = base64.b64encode(job.script.encode()).decode()
        options = {
            "job-name": job.name,
            "comment": comment_form(job.comment),
            "nodes": job.num_nodes,
            "ntasks-per-node": 1,
            # Systems Manager's agent may lock 8 MiB of memory, which sbatch would pass on to the job.
            "propagate": "NONE",
            "time": job.time_limit_minutes,
            "signal": f"TERM@{job.warn_seconds}",
            "dependency": dependency(after),
            "mem": f"{job.memory_mib}M" if job.memory_mib else "0",
            "chdir": "/tmp",  # noqa: S108  (exists on every node)
            "output": "/dev/null",  # the script writes its own log
            "export": "NONE",
            **({"partition": job.partition} if job.partition else {}),
            **({"exclude": ",".join(job.avoided_nodes)} if job.avoided_nodes else {}),
        }
        flags = ["--parsable", "--no-requeue", *(["--exclusive"] if job.exclusive else [])]
        sbatch = shlex.join(["sbatch", *flags, *(f"--{name}={value}" for name, value in options.items())])
        failed, said = self._run(f"echo {script} | base64 -d | {sbatch}")
        if failed and any(words in said for words in UNREACHED):
            raise self._unavailable(said)
        if failed:
            raise JobRefused(f"Slurm refuses the job '{job.name}': {said.strip().rstrip('.')}.")

    def jobs(self) -> list[SlurmJob]:
        """Jobs of the user, in one command."""
        return self._squeue(f"--user={self._user}")

    def job(self, job_id: int) -> SlurmJob | None:
        """One job, in one command."""
        return next(iter(self._squeue(f"--jobs={job_id}", unknown_is_none=True)), None)

    def cancel(self, job_id: int) -> None:
        """Cancel a job. `scancel --quiet` accepts a job that has ended."""
        self._expected(f"scancel --quiet {job_id}")

    def partition(self, name: str) -> Partition | None:
        """The partition as `scontrol` shows it."""
        failed, said = self._run(f"scontrol --oneliner show partition {shlex.quote(name)}")
        if failed:
            if "not found" in said:
                return None
            raise self._unavailable(said)
        with self._understood:
            return _partition(said)

    def partitions(self) -> list[Partition]:
        """All partitions as `scontrol` shows them, a line each."""
        failed, said = self._run_whole("scontrol --oneliner show partition")
        if failed:
            raise self._unavailable(said)
        with self._understood:
            return [_partition(line) for line in said.split("\n") if line]

    def cancelled_by(self, job_id: int) -> str | None:
        """The user in the accounting database, where there is one: `CANCELLED by 1001`."""
        failed, said = self._run(f"sacct --noheader --parsable2 --allocations --jobs={job_id} --format=State%60")
        found = re.search(r"CANCELLED by (\d+)", said)
        return f"uid {found[1]}" if found and not failed else None

    def _squeue(self, which: str, *, unknown_is_none: bool = False) -> list[SlurmJob]:
        command = f"TZ=UTC SLURM_TIME_FORMAT=standard squeue --noheader --states=all {which} --format={COLUMNS!r}"
        failed, said = self._run_whole(command)
        if failed and unknown_is_none and "Invalid job id" in said:
            return []
        if failed:
            raise self._unavailable(said)
        with self._understood:
            return [_job(line) for line in said.split("\n") if line.count("|") >= COLUMNS.count("|")]

    @property
    def _understood(self) -> AbstractContextManager[None]:
        return understood(f"A command of Slurm's on {self._instance_id}")

    def _expected(self, command: str) -> str:
        failed, said = self._run(command)
        if failed:
            raise self._unavailable(said)
        return said

    def _run_whole(self, command: str) -> tuple[bool, str]:
        """The same as `_run` for output that may be long: packed, and all of it or nothing.

        Raises:
            ClusterUnavailable: If it was cut off: a job that is missing would be taken for one never submitted.
        """
        failed, said = self._run(f"set -o pipefail; {command} | gzip --best | base64 --wrap=0")
        if failed:
            return failed, said
        try:
            (packed,) = said.splitlines()[-1:]  # a login shell may have greeted before
            return failed, gzip.decompress(base64.b64decode(packed, validate=True)).decode(errors="replace")
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise self._unavailable(
                f"the queue is longer than Systems Manager's {MAX_CHARACTERS:,} characters hold; use slurmrestd: "
                "its address in SLURM_API_URL"
            ) from error

    def _run(self, command: str) -> tuple[bool, str]:
        """Run a command as the user, in a login shell, which has Slurm's commands in its path.

        Returns:
            Whether it failed, and what it printed.
        """
        ssm, shell = client("ssm"), f"runuser -u {shlex.quote(self._user)} -- bash -lc {shlex.quote(command)}"
        with translated("ssm:SendCommand"):
            sent = ssm.send_command(
                InstanceIds=[self._instance_id], DocumentName=DOCUMENT, Parameters={"commands": [shell]}
            )
        command_id, deadline = sent["Command"]["CommandId"], time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
            try:
                with translated("ssm:GetCommandInvocation"):
                    found = ssm.get_command_invocation(CommandId=command_id, InstanceId=self._instance_id)
            except ssm.exceptions.InvocationDoesNotExist:
                continue  # not known everywhere yet
            if found["Status"] not in RUNNING:
                failed, output = found["Status"] != "Success", str(found["StandardOutputContent"])
                # Some of Slurm's commands complain where others answer.
                return failed, (str(found["StandardErrorContent"]) or output) if failed else output
        raise self._unavailable(f"no answer in {LONGEST_SECONDS:g} seconds")

    def _unavailable(self, said: str) -> ClusterUnavailable:
        last = (said.strip().splitlines() or ["it said nothing"])[-1]
        return ClusterUnavailable(f"Slurm's commands on {self._instance_id} did not answer: {last.rstrip('.')}.")


def _job(line: str) -> SlurmJob:
    number, name, user, state, nodes, submitted, started, ended, reason, comment = line.split("|", COLUMNS.count("|"))
    return SlurmJob(
        job_id=int(number.partition("_")[0]),
        name=name,
        user=user,
        states=frozenset([state.partition(" ")[0]]),
        comment=parse_comment(comment),
        reason=None if reason in NONE else reason,
        nodes=nodes or None,
        submitted_at=_time(submitted),
        started_at=_time(started),
        ended_at=_time(ended),
    )


def _partition(line: str) -> Partition:
    fields = dict(re.findall(r"(\w+)=(\S*)", line))
    return Partition(
        name=fields["PartitionName"],
        num_nodes=int(fields["TotalNodes"]),
        max_nodes_per_job=int(fields["MaxNodes"]) if fields["MaxNodes"] not in NONE else None,
        max_minutes=_minutes(fields["MaxTime"]),
        is_up=fields.get("State") == "UP",
        is_default=fields.get("Default") == "YES",
    )


def _time(text: str) -> datetime | None:
    return None if text in NONE else datetime.fromisoformat(text).replace(tzinfo=UTC)


def _minutes(text: str) -> int | None:
    """Minutes of `D-HH:MM:SS`, which is how Slurm writes time limits."""
    if text in NONE:
        return None
    days, _, clock = text.rpartition("-")
    hours, minutes, _seconds = (int(part) for part in clock.split(":"))
    return (int(days or 0) * 24 + hours) * 60 + minutes
