"""Environment of every pod of a run: the shared file system and its folders, an account, a user."""

from __future__ import annotations

CLAIM = "fsx-claim"
"""PersistentVolumeClaim of the shared file system, named as in the tutorial."""

SERVICE_ACCOUNT = "training"
"""Service account of the pods, bound to their IAM role by EKS Pod Identity."""

USER = 1000
"""User and group of the images and of the shared file system's folders."""

DATA = "data"
RUNS = "runs"
CACHE = "cache"

FOLDERS = (DATA, RUNS, CACHE)
"""Folders of the shared file system: data sets, what runs keep, compiled graphs."""

DATA_MOUNT = f"/{DATA}"
RUNS_MOUNT = f"/{RUNS}"
CACHE_MOUNT = f"/{CACHE}"

MOUNTS = tuple(f"/{folder}" for folder in FOLDERS)
"""Mount points of the folders in pods, in the folders' order."""

PACKAGES_FOLDER = f"{CACHE_MOUNT}/packages"
"""Packages of requirements that runs share: programs of Trainflow's image write them, all others read."""

HELPERS_MOUNT = "/trainflow"
"""Mount point, in the workload's container, of the files that an init container copies for it."""

HELPERS = f"{HELPERS_MOUNT}/helpers"
"""The helpers: a folder that `python` starts, as `python /trainflow/helpers supervisor …`."""

WORKSPACE = "/workspace"
"""The run's code, where the spec names some, a copy of each pod's own. A training works in a copy below the run's
folder; for other programs it is the working directory."""

JOBS = "jobs"
"""Folder of the shared file system for files of running Slurm jobs; pods do not mount it."""

SCRATCH_MOUNT = "/scratch"
"""The node's own NVMe disks, where the instance type has some; what is there goes with the pod."""

LOCAL_CHECKPOINTS_MOUNT = "/local-checkpoints"
"""Memory of the node for checkpoints; what is there goes with the pod."""

SCRATCH_CHECKPOINTS = f"{SCRATCH_MOUNT}/.trainflow-checkpoints"
"""Folder for them on the node's own disks."""
