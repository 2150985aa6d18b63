"""Every named way in which a run can go wrong.

Step Functions matches errors by exact class name, so these names stand in the state machines too; a test
compares the two lists. Each class says what to do next: the command and the report print it beside the message.
"""

from __future__ import annotations


class TrainflowError(Exception):
    """Base of all named errors. The message is one sentence for the person who started the run."""

    what_to_do: str = "Read the run's report for the state that failed."
    input_at_fault: bool = False
    """Whether the user's input has to be corrected: the spec, the data set, the program."""


class InvalidRunSpec(TrainflowError):
    """The run spec cannot be run as it is written."""

    what_to_do = (
        "Correct the named field of the run spec; `trainflow validate SPEC` checks it without starting anything."
    )
    input_at_fault = True


class RunRequestInvalid(TrainflowError):
    """A request for a run leads to no run spec."""

    what_to_do = "Upload the run spec again under `runs/`, with a name that ends in .yaml, .yml or .json."
    input_at_fault = True


class PreflightFailed(TrainflowError):
    """The run could not have started: everything that is in its way, in one list."""

    what_to_do = "Put right what the message lists, then start the run again; nothing was billed for this one."
    input_at_fault = True


class DatasetNotFound(TrainflowError):
    """The data set's URL leads to no object that the run may read."""

    what_to_do = "Correct `dataset.url`, or upload the archive there and grant the run read access."
    input_at_fault = True


class DatasetInvalid(TrainflowError):
    """The archive is damaged, unsafe to unpack, or holds shards that cannot be trained on."""

    what_to_do = (
        "Make the archive again from complete shards and upload it, or correct what the spec says of it: "
        "`dataset.min_shards`, `sha256` or `manifest_url`."
    )
    input_at_fault = True


class DestinationNotEmpty(TrainflowError):
    """The folder that the data set is unpacked into holds another data set, or files of another owner."""

    what_to_do = (
        "Give the data set a folder of its own with `dataset.name`, or empty the folder that the message names."
    )
    input_at_fault = True


class ConfigInvalid(TrainflowError):
    """An argument of the training program is missing, unknown or out of range."""

    what_to_do = "Correct the named flag under `workload.arguments`."
    input_at_fault = True


class CheckpointInvalid(TrainflowError):
    """The run's folder holds a checkpoint of another training, or damaged ones only."""

    what_to_do = (
        "Start the run under another name, or with the arguments that the checkpoint was made with; a change that is "
        "meant is allowed by `workload.arguments.allow_changes`. Damaged files are named: bring one of them back from "
        "a copy, or delete their folder to begin anew."
    )
    input_at_fault = True


class CheckpointNotFound(TrainflowError):
    """Training ended without a checkpoint that can be trusted."""

    what_to_do = "Read the training pods' logs for what kept the checkpoints from being written whole."


class StagingStalled(TrainflowError):
    """Nothing of the data set arrived for longer than the spec allows."""

    what_to_do = (
        "Read the staging pod's log, and check the network path to the source, or the data repository task that the "
        "message names; or raise `limits.stall_minutes`. A new run goes on with the files that are complete."
    )


class StorageFailed(TrainflowError):
    """A file system or bucket refused a write or a read: full, read-only, access denied."""

    what_to_do = (
        "Free space, or give the pods' or nodes' role the right that the message names, and start the run again."
    )


class LossNotFinite(TrainflowError):
    """The loss or the gradients became NaN or infinite."""

    what_to_do = (
        "Lower the learning rate or lengthen the warm-up, and start again; the last checkpoint before it is kept."
    )
    input_at_fault = True


class WorldSizeMismatch(TrainflowError):
    """The process group is not as large as the launcher said: every rank would have trained alone."""

    what_to_do = "Check the image's distributed backend; the message names both numbers."


class LockedMemoryTooSmall(TrainflowError):
    """A container may not lock the memory that EFA has to register."""

    what_to_do = (
        "Deploy the capacity stack: its nodes raise the limit for every container. On nodes of your own raise "
        "RLIMIT_MEMLOCK in containerd's base runtime spec."
    )


class CapacityTimeout(TrainflowError):
    """The gang's nodes did not become ready in time."""

    what_to_do = (
        "Check the node group's health issues, choose another instance type or zone, or raise "
        "`limits.capacity_timeout_minutes`."
    )


class GangTooLarge(TrainflowError):
    """The gang has more nodes than its node group may ever have."""

    what_to_do = "Ask for fewer nodes, or raise `max_nodes` of the node group in the configuration and deploy again."
    input_at_fault = True


class GangIncomplete(TrainflowError):
    """Not all pods of a gang, or nodes of a Slurm job, ran in time."""

    what_to_do = (
        "Find out what kept them (the message, and `kubectl describe pod`; with Slurm `scontrol show job`), or raise "
        "`limits.gang_timeout_minutes`."
    )


class BackendNotInstalled(TrainflowError):
    """The cluster lacks the custom resource that the spec's backend makes."""

    what_to_do = "Choose another `compute.backend` (`job` and `pod` are there in every cluster), or install it."
    input_at_fault = True


class NodegroupNotFound(TrainflowError):
    """The cluster has no node group for the instance type."""

    what_to_do = "Deploy a node group for this instance type, or choose one that the cluster has."


class JobConflict(TrainflowError):
    """A job of this name exists and was made from another specification."""

    what_to_do = "Start the run under another execution name; the existing job is left alone."


class JobNotFound(TrainflowError):
    """The job disappeared from the cluster while it was being watched."""

    what_to_do = (
        "Find out who deleted it (the cluster's audit log; with Slurm slurmctld's log, and MinJobAge has to be above "
        "`limits.poll_seconds`) and start the run again."
    )


class ScriptFailed(TrainflowError):
    """The workload's program ended by itself with an error before its first step."""

    what_to_do = "Read the pod's last lines in the report, correct the program or its arguments, and start again."
    input_at_fault = True


class WorkerFailed(TrainflowError):
    """A worker died after training had begun."""

    what_to_do = (
        "Read the worker's last lines in the report; restarts from the newest checkpoint did not help, so the cause "
        "may lie in the program, its data or its memory."
    )


class NodeLost(TrainflowError):
    """A node of the gang died or was taken away."""

    what_to_do = "Check the node's health events; raise `limits.max_restarts` if nodes are lost often."


class JobPreempted(TrainflowError):
    """The scheduler took the job's nodes for a more important one."""

    what_to_do = "Give the run a higher priority or a queue that is not preempted, or raise `limits.max_restarts`."


class JobCancelled(TrainflowError):
    """A user cancelled the Slurm job instead of stopping the run."""

    what_to_do = (
        "Ask the user who cancelled it, then start the run again: a job that a user cancelled is not restarted."
    )


class JobRefused(TrainflowError):
    """Slurm does not take the job as it is."""

    what_to_do = (
        "Correct what the message names, in the spec's `compute` or `limits`, or ask the cluster's administrator."
    )
    input_at_fault = True


class JobDeadlineExceeded(TrainflowError):
    """The job ran longer than the spec allows."""

    what_to_do = "Raise `limits.max_duration_hours`, or ask for fewer steps."


class JobStalled(TrainflowError):
    """No step was logged for longer than the spec allows."""

    what_to_do = "Read the pod's last lines in the report, or raise `limits.stall_minutes`."


class GraphCompilationFailed(TrainflowError):
    """The compilation of at least one graph of the model failed."""

    what_to_do = "Read the compiler's message about the graphs: the precompile job's log is in logs/ beside run.json."


class CompileCacheGone(TrainflowError):
    """A compile cache that was found ready has been deleted from the file system. The run compiles it anew, once."""

    what_to_do = "Find out what empties `/cache` while runs train, and start the run again."


class CompilationNotReported(TrainflowError):
    """The precompile job ended well but did not say how many graphs it compiled."""

    what_to_do = "Run the program behind `python -m trainer.precompile --`, which prints the counts."
    input_at_fault = True


class ClusterUnavailable(TrainflowError):
    """The Kubernetes API, or Slurm, did not answer or throttled the request. Retried."""

    what_to_do = (
        "Check that the cluster is ACTIVE and that its private endpoint is reachable from the Lambdas; with Slurm, "
        "that slurmctld and slurmrestd run (`scontrol ping`), and that SLURM_API_URL and SLURM_KEY_SECRET name them."
    )


class ClusterAccessDenied(TrainflowError):
    """The Kubernetes API refused the Lambda's identity or one of its verbs, or Slurm refused its token."""

    what_to_do = (
        "Give the function's role an access entry and the RBAC rule that the message names; with Slurm, put the "
        "cluster's key, in base64, into the secret SLURM_KEY_SECRET."
    )


class ServiceUnavailable(TrainflowError):
    """An AWS service throttled the call or failed on its side. Retried."""

    what_to_do = "Wait, then start the run again; if it persists, check the account's service quotas."


def named_errors() -> dict[str, type[TrainflowError]]:
    """Every error class by the name under which Step Functions knows it."""
    return {error.__name__: error for error in TrainflowError.__subclasses__() if error.__module__ == __name__}


RETRYABLE = (ClusterUnavailable, ServiceUnavailable)
"""What a Task state retries, besides Lambda's own service errors."""

RESTARTED = (GangIncomplete, WorkerFailed, JobStalled, NodeLost, JobPreempted)
"""What may go well on other nodes: the job is started anew, as often as `limits.max_restarts` says."""
