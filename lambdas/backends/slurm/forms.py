"""Names of fields in the versions of Slurm's REST API: one family up to v0.0.38, another since v0.0.39.

Slurm 22.05 serves v0.0.38, 23.02 v0.0.39, 23.11 v0.0.40, 24.05 v0.0.41, 24.11 v0.0.42, 25.05 v0.0.43, 25.11 v0.0.44
(schedmd.com, "OpenAPI Plugin Release Notes"). What `squeue --json` prints is in the form of the newest.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from trainflow.deployment.slurm import JobComment, Partition, SlurmJob, Submission
from trainflow.errors import ClusterUnavailable
from trainflow.spec.sentences import shortened

KNOWN_VERSIONS = tuple(range(38, 45))
"""Values of N in v0.0.N that these functions support."""

FIRST_OF_NEW_FAMILY = 39

FIRST_WITH_THE_SCRIPT_IN_THE_JOB = 41
"""Since then a script beside the job is deprecated."""

MARK = "trainflow"
"""Field of a comment that marks a job as Trainflow's."""

LEAST_PATH = "/usr/local/bin:/usr/bin:/bin"
"""Smallest environment: Slurm refuses a job without one. The script sets its own."""

NO_VALUE = 0xFFFFFFFE
"""Slurm's NO_VAL and, one above, INFINITE; v0.0.38 passes on some of them as -1 or null."""

MAX_COMPLAINTS, LONGEST_REASON = 5, 500
"""Most errors of an answer that messages name, and characters of each."""

_VERSION = re.compile(r"^/slurm/v0\.0\.(\d{1,9})/job/submit/?$")
_CURRENT_USER = re.compile(r"^/slurmdb/v0\.0\.(\d{1,9})/job/\{job_id\}/?$")

FAULTS = (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)
"""Exceptions for undocumented values; OSError: timestamp out of range."""


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Read an answer of Slurm's.

    Args:
        what: What gave the answer, for the message.

    Raises:
        ClusterUnavailable: If the answer is in no form that this module knows: a proxy may have answered, or the answer
            broke off. Another poll asks again.
    """
    try:
        yield
    except FAULTS as error:
        reason = f"{type(error).__name__}: {shortened(error)}"
        raise ClusterUnavailable(
            f"{what} gave an answer that is not in a known form ({reason}); check that nothing but Slurm answers there."
        ) from error


def newest_version(paths: Iterable[str]) -> int | None:
    """The N of the newest v0.0.N that server and module support, from the paths of its OpenAPI document."""
    offered = {int(found[1]) for path in paths if (found := _VERSION.match(path))}
    return max(offered.intersection(KNOWN_VERSIONS), default=None)


def knows_accounting(paths: Iterable[str], version: int) -> bool:
    """Whether the server also answers questions about jobs in the accounting database."""
    return any((found := _CURRENT_USER.match(path)) and int(found[1]) == version for path in paths)


def submission_form(job: Submission, version: int, *, after: Sequence[int] = ()) -> dict[str, Any]:
    """The body of a submit.

    The job waits for any other of its name and user (`singleton`): should two submits cross, one of the two jobs is
    cancelled before it could start. Slurm must never requeue it by itself: the workflow decides on restarts.

    Args:
        job: What to submit.
        version: The N of v0.0.N.
        after: Jobs that have to end first, with success or not.
    """
    form: dict[str, Any] = {
        "name": job.name,
        "comment": comment_form(job.comment),
        "tasks": job.num_nodes,
        "tasks_per_node": 1,
        "dependency": dependency(after),
        "current_working_directory": "/tmp",  # noqa: S108  (exists on every node)
        "standard_output": "/dev/null",  # the script writes its own log, into a folder that it makes
        **({"partition": job.partition} if job.partition else {}),
    }
    if version < FIRST_OF_NEW_FAMILY:
        form |= {
            "nodes": [job.num_nodes, job.num_nodes],
            "environment": {"PATH": LEAST_PATH},
            "time_limit": job.time_limit_minutes,
            "signal": f"TERM@{job.warn_seconds}",
            "no_requeue": True,  # `requeue` means yes there, whatever its value
            "memory_per_node": job.memory_mib or 0,
            **({"exclusive": "exclusive"} if job.exclusive else {}),
            **({"exclude_nodes": ",".join(job.avoided_nodes)} if job.avoided_nodes else {}),
        }
        return {"script": job.script, "job": form}
    form |= {
        "minimum_nodes": job.num_nodes,
        "maximum_nodes": job.num_nodes,
        "environment": [f"PATH={LEAST_PATH}"],
        "time_limit": _some(job.time_limit_minutes),
        "requeue": False,
        "kill_warning_signal": "TERM",
        "kill_warning_delay": _some(job.warn_seconds),
        "memory_per_node": _some(job.memory_mib or 0),
        **({"shared": ["none"]} if job.exclusive else {}),
        **({"excluded_nodes": list(job.avoided_nodes)} if job.avoided_nodes else {}),
    }
    if version < FIRST_WITH_THE_SCRIPT_IN_THE_JOB:
        return {"script": job.script, "job": form}
    return {"job": {**form, "script": job.script}}


def dependency(after: Sequence[int]) -> str:
    """Dependencies of a job in the form of `sbatch --dependency`."""
    return ",".join(["singleton", *(f"afterany:{job_id}" for job_id in after)])


def comment_form(comment: JobComment) -> str:
    """A job's comment: one line of JSON."""
    return json.dumps({MARK: 1, **asdict(comment)}, separators=(",", ":"))


def parse_comment(text: str | None) -> JobComment | None:
    """A job's comment, parsed; None for a comment of another program."""
    try:
        fields = json.loads(text or "")
        if fields.pop(MARK) != 1:
            return None
        return JobComment(**fields)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def parse_job(found: Mapping[str, Any]) -> SlurmJob:
    """A job from any version's answer, or from `squeue --json`."""
    states = found.get("job_state") or []
    return SlurmJob(
        job_id=int(found["job_id"]),
        name=str(found.get("name") or ""),
        user=str(found.get("user_name") or ""),
        states=frozenset([states] if isinstance(states, str) else states),
        comment=parse_comment(found.get("comment")),
        reason=_text(found.get("state_reason")),
        description=_text(found.get("state_description")),
        nodes=_text(found.get("nodes")),
        failed_node=_text(found.get("failed_node")),
        submitted_at=_time(found.get("submit_time")),
        started_at=_time(found.get("start_time")),
        ended_at=_time(found.get("end_time")),
    )


def parse_partition(found: Mapping[str, Any]) -> Partition:
    """A partition from any version's answer, or from `scontrol show partition --json`."""
    if "total_nodes" in found:
        return Partition(
            name=str(found["name"]),
            num_nodes=int(found["total_nodes"]),
            max_nodes_per_job=_number(found.get("maximum_nodes_per_job")),
            max_minutes=_number(found.get("max_time_limit")),
            is_up=found.get("state") == "UP",
            is_default=_is_default(found),
        )
    maximums = found.get("maximums") or {}
    return Partition(
        name=str(found["name"]),
        num_nodes=int(found["nodes"]["total"]),
        max_nodes_per_job=_number(maximums.get("nodes")),
        max_minutes=_number(maximums.get("time")),
        is_up="UP" in ((found.get("partition") or {}).get("state") or ["UP"]),
        is_default=_is_default(found),
    )


def _is_default(found: Mapping[str, Any]) -> bool:
    return "default" in (str(flag).lower() for flag in found.get("flags") or ())


def complaints(answer: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Number and description of each error in an answer; v0.0.38 has three names for the number."""
    errors = answer.get("errors")
    found = []
    for error in errors if isinstance(errors, list) else ():
        if not isinstance(error, Mapping):
            continue
        numbers = (error.get(name) for name in ("error_number", "error_code", "errno"))
        number = next((number for number in numbers if isinstance(number, int)), -1)
        reason = shortened(error.get("description") or error.get("error") or "no reason given", LONGEST_REASON)
        found.append((number, reason.rstrip(".")))
    return found[:MAX_COMPLAINTS]


def _some(number: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": number}


def _number(value: Any) -> int | None:
    """A number that may be missing, without bound, or wrapped; None for anything but a number."""
    if isinstance(value, Mapping):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    if value is None or not math.isfinite(value) or value < 0 or value >= NO_VALUE:
        return None
    return int(value)


def _time(value: Any) -> datetime | None:
    seconds = _number(value)
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def _text(value: Any) -> str | None:
    return str(value) if value and value not in ("None", "(null)") else None
