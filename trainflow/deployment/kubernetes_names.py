"""Labels and annotations on every object that Trainflow makes in a cluster."""

from __future__ import annotations

MANAGED_BY = {"app.kubernetes.io/managed-by": "trainflow"}
RUN_LABEL = "trainflow/run"
STAGE_LABEL = "trainflow/stage"
ATTEMPT_LABEL = "trainflow/attempt"

JOB_LABEL = "trainflow/job"
"""The job's name. The controllers call theirs by five different labels; this one is the same on every backend."""

BACKEND_LABEL = "trainflow/backend"
"""Kind of object that runs the job. It distinguishes a pod that is a job from the pods of jobs."""

TEAM_LABEL = "trainflow/team"
PROJECT_LABEL = "trainflow/project"
"""Labels of the objects of runs with a team or a project. Tools that divide the bill of a cluster read them."""

FIRST_NODE_RANK_LABEL = "trainflow/first-node-rank"
"""Label of a PyTorchJob's workers, which the operator counts from 0 although the master is node 0."""

ELASTIC_LABEL = "trainflow/elastic"
"""Label of the pods of a gang whose ranks are assigned at run time: any of them may be rank 0."""

NETWORK_LABEL = "trainflow/network"
"""Label of pods that only pods of their job can reach. Pods from earlier versions lack it, and can reach each other
until they end."""

CLAIM_LABEL = "trainflow/claims"
"""Label of the ConfigMap with a run's claim on nodes. Value: their instance type."""

PLACEHOLDER_LABEL = "trainflow/placeholder"
"""Label of pods that hold nodes for a gang until its job takes their place, on a cluster that makes nodes by itself."""

PLACEHOLDER_PRIORITY = "trainflow-placeholder"
"""PriorityClass of these pods, below that of pods without a class."""

UNDISTURBED = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotations of every pod of a run: Karpenter, EKS Auto Mode and the Cluster Autoscaler do not end its node while it
runs (Karpenter documentation, "Disruption"; Cluster Autoscaler, "Frequently Asked Questions")."""

ENDS_AT_LABEL = "trainflow/ends-at"
"""Label of nodes that EC2 terminates at a known time, such as those of a capacity block: seconds since the epoch,
because a label takes no colons."""

NODES_LABEL = "trainflow/nodes"
"""Label of the nodes of a deployment. Value: their purpose. Nodes of a cluster that Trainflow did not create lack
it."""

TRAINING_NODES = {NODES_LABEL: "training"}
"""Nodes that are started for a run and released after it."""

SMALL_JOB_NODES = {NODES_LABEL: "small-jobs"}
"""Permanent nodes for probing, staging and publishing. They have a taint of the same key and value, which keeps
everything else away."""

CONTROLLER_NODES = {NODES_LABEL: "controllers"}
"""Permanent nodes of the cluster's own software, in a deployment that has others for small jobs."""

DEFAULT_CONTAINER_ANNOTATION = "kubectl.kubernetes.io/default-container"
"""Annotation that names a pod's main container (Kubernetes documentation, "Well-Known Labels"). Injectors set it, too:
it counts only for pods without a stage."""

HELPERS_CONTAINER = "helpers"
"""Name of the init container that installs our helpers for the program."""

FETCH_CONTAINER = "packages"
"""Name of the init container that resolves and fetches required packages in the program's image."""

SHARE_CONTAINER = "shared-packages"
"""Name of the init container that installs fetched packages for all runs."""

INIT_CONTAINERS = (HELPERS_CONTAINER, FETCH_CONTAINER, SHARE_CONTAINER)
"""Names of our init containers."""

NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
"""The kubelet's reasons of a container whose image it cannot pull."""

REPLACED_ANNOTATION = "trainflow/replaced-by-run"
"""Annotation of a node whose instance is terminated, because jobs of that run failed there."""

CORDONED_ANNOTATION = "trainflow/cordoned-by-run"
"""Annotation of such a node that was not cordoned before: only this cordon is ours to remove."""

RELEASED_ANNOTATION = "trainflow/released"
"""Annotation of a node that no run needs, while others of its type are in use. It is cordoned, and its instance is
terminated next."""

SPEC_HASH_ANNOTATION = "trainflow/spec-hash"
"""Tells whether an existing job of the same name is the same job."""

GRANTED_ANNOTATION = "trainflow/granted-at"
"""Time of the last grant of nodes of a type."""
