"""Every named way in which a run can go wrong.

Step Functions matches errors by exact class name, so these names stand in the state machines too; a test
compares the two lists. Each class says what to do next: the command and the report print it beside the message.
Whether a restart may help says `trainflow/failures/table.toml`.
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


class CodeInvalid(TrainflowError):
    """The packed code is gone, damaged or unsafe to unpack, or what it requires cannot be installed."""

    what_to_do = (
        "Correct what the message names in the code, and start the run with `trainflow run`, which packs it anew."
    )
    input_at_fault = True


class SecretUnavailable(TrainflowError):
    """A secret of AWS Secrets Manager that the spec names does not exist, may not be read, or has no such value."""

    what_to_do = (
        "Create the secret that the message names, or name it in `run_secrets` of the deployment's configuration and "
        "deploy the cluster stack again; runs that have begun read it at each start of their program."
    )
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
    """Training ended without a checkpoint that can be trusted, or was to continue runs that have none."""

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


class AvoidedNodesNotReplaced(TrainflowError):
    """The gang does not fit into its node group beside the nodes that the run avoids, because its jobs failed there."""

    what_to_do = (
        "Examine the nodes that the message names, and replace those that are bad; or raise `max_nodes` of the node "
        "group in the configuration and deploy again. `trainflow resume RUN` goes on without avoiding any node."
    )


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
    """The workload's program has an error that would occur again, or ended by itself before its first step."""

    what_to_do = "Read the pod's last lines in the report, correct the program or its arguments, and start again."
    input_at_fault = True


class WorkerFailed(TrainflowError):
    """A worker died, and nothing says that it would die again."""

    what_to_do = (
        "Read the worker's last lines in the report; restarts from the newest checkpoint did not help, so the cause "
        "may lie in the program, its data or its memory."
    )


class OutOfMemory(TrainflowError):
    """The program needs more memory than its container, node or devices have."""

    what_to_do = (
        "Lower the batch size, the sequence length or the number of data loader workers, or choose an instance type "
        "with more memory."
    )
    input_at_fault = True


class WorkerOutOfMemory(TrainflowError):
    """A worker's memory was used up after steps that had succeeded: it grows while the program runs."""

    what_to_do = (
        "Find what grows (the report shows the host's memory, where it is known): often a list of losses that are "
        "tensors, or caches of data loader workers. Restarts from the newest checkpoint did not help."
    )


class AccessDenied(TrainflowError):
    """The program lacks a right, or its credentials are missing, wrong or expired."""

    what_to_do = (
        "Give the pods' or nodes' role, or the program's token (`workload.secrets`), the right that the message names."
    )
    input_at_fault = True


class ImageUnavailable(TrainflowError):
    """The image of the workload cannot be pulled."""

    what_to_do = "Correct `workload.image`, or let the nodes' role read the repository."
    input_at_fault = True


class ContainerNotStarted(TrainflowError):
    """The container could not be made, or its command could not be started."""

    what_to_do = "Correct `workload.command`, the image, or the volume that the message names."
    input_at_fault = True


class DeviceFailed(TrainflowError):
    """An accelerator or its driver failed, or did not start."""

    what_to_do = (
        "Restarts did not help: check the node's health events, and terminate the instance if the message names the "
        "same node again."
    )


class NodeUnhealthy(TrainflowError):
    """A node of the gang failed the test before the training, or is much slower than the others."""

    what_to_do = (
        "Examine the nodes that the run's record names as avoided, and terminate the instances of those that are bad. "
        "`compute.check_nodes: false` trains without the test, if the nodes are known to be good."
    )


class NetworkFailed(TrainflowError):
    """Processes of the gang lost or never had a connection to each other."""

    what_to_do = (
        "Check the nodes' security group (all traffic from itself, EFA's in both directions) and their DNS; the last "
        "lines of the other pods may name a process that ended first."
    )


class CollectiveTimeout(TrainflowError):
    """A collective operation did not end: a rank was missing, late, or in another operation."""

    what_to_do = (
        "Compare the last lines of all ranks for one that does something else, or that hangs; if it is always the "
        "same node, terminate that instance."
    )


class StorageUnavailable(TrainflowError):
    """A file system or S3 was out of reach, throttled the program or failed on its side."""

    what_to_do = "Check the file system's health and throughput, or lower the rate of requests to the bucket."


class RemoteUnavailable(TrainflowError):
    """A service outside, such as a model hub or a package index, was out of reach or failed on its side."""

    what_to_do = (
        "Start the run again later, or copy what the program downloads to S3 or the shared file system beforehand."
    )


class JobEvicted(TrainflowError):
    """A pod was evicted from its node, or refused by it: a drain, or a node that is short of something."""

    what_to_do = "Check the node's conditions and what else runs there; raise `limits.max_restarts` for planned drains."


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


class BudgetReached(TrainflowError):
    """The run's nodes have cost as much as its spec allows."""

    what_to_do = "Continue the run with a budget of its own: `trainflow resume RUN --set limits.max_usd=USD`."


class DeadlineReached(TrainflowError):
    """The run has gone on for as long as its spec allows."""

    what_to_do = (
        "Continue the run from its checkpoint: `trainflow resume RUN`, with `--set` and a later `limits.deadline` or "
        "another `limits.max_total_hours`."
    )


class JobStalled(TrainflowError):
    """No step was logged for longer than the spec allows."""

    what_to_do = "Read the pod's last lines in the report, or raise `limits.stall_minutes`."


class GraphCompilationFailed(TrainflowError):
    """The compilation of at least one graph of the model failed."""

    what_to_do = "Read the compiler's message about the graphs: the precompile job's log is in logs/ beside run.json."


class CompileCacheGone(TrainflowError):
    """A compile cache that was found ready has been deleted from the file system, or damaged there. The run compiles it
    anew, once."""

    what_to_do = "Find out what empties or changes `/cache` while runs train, and start the run again."


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


ENDED_BY_LIMIT = (BudgetReached, DeadlineReached)
"""Errors of runs that were to end so: with a checkpoint, published artifacts and no nodes left."""

RETRYABLE = (ClusterUnavailable, ServiceUnavailable)
"""What a Task state retries, besides Lambda's own service errors."""
