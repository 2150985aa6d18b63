"""Checks of a run before anything is started on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryFile

from local.aws.deployment import MAX_NODES
from local.slurm import packages
from local.slurm.configuration import SlurmSettings
from local.slurm.errors import SlurmMissing
from trainflow.client.private_folder import make_private
from trainflow.errors import DatasetNotFound, InvalidRunSpec, TrainflowError
from trainflow.nodes.instances import nodegroup_name
from trainflow.spec.gang_fit import require_fit, require_partition_fit
from trainflow.spec.run_spec import RunSpec
from trainflow.spec.workload import Workload


class MachineUnfit(TrainflowError):
    """This machine lacks something that the twin needs."""


def has_program(workload: Workload, folder: Path) -> bool:
    """Whether a folder holds the workload's program."""
    if workload.script is not None:
        return (folder / workload.script).is_file()
    if workload.command is not None:
        return (folder / workload.command[0]).is_file()  # an absolute path is its own
    path = folder.joinpath(*str(workload.module).split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def require_program(workload: Workload, image_root: Path) -> None:
    """The workload's program has to be in the folder that stands for the image.

    Raises:
        InvalidRunSpec: If it is not; names the field.
    """
    if workload.script is not None:
        if not (image_root / workload.script).is_file():
            raise InvalidRunSpec(
                f"workload.script: there is no file '{workload.script}' in {image_root}, which stands for the image; "
                "correct the path."
            )
        return
    if workload.command is not None:
        first = workload.command[0]
        if "/" in first and not has_program(workload, image_root):
            raise InvalidRunSpec(
                f"workload.command: there is no program '{first}' in {image_root}, which stands for the image; correct "
                "the path."
            )
        return  # the first word is found by the shell's rules
    if not (image_root / str(workload.module).split(".")[0]).is_dir():
        return  # a module that the environment has installed
    if not has_program(workload, image_root):
        raise InvalidRunSpec(
            f"workload.module: there is no module '{workload.module}' in {image_root}; correct the name."
        )


def require_dataset(spec: RunSpec, s3_root: Path) -> None:
    """The data set has to be in the folder that the twin's S3 is; what is behind https:// only the pod can know.

    Raises:
        DatasetNotFound: If it is not; says where to put it.
    """
    dataset = spec.dataset
    if dataset is None:
        return
    path = s3_root / dataset.bucket / dataset.key
    if dataset.in_s3 and dataset.is_prefix and not any(found.is_file() for found in path.rglob("*")):
        raise DatasetNotFound(
            f"dataset.url: there is nothing below {dataset.url}; in the twin it would be files in the folder {path}."
        )
    if dataset.in_s3 and not dataset.is_prefix and not path.is_file():
        raise DatasetNotFound(f"dataset.url: {dataset.url} does not exist; in the twin it would be the file {path}.")
    listed = dataset.manifest
    if listed is not None and not (manifest := s3_root / listed.bucket / listed.key).is_file():
        raise DatasetNotFound(
            f"dataset.manifest_url: {dataset.manifest_url} does not exist; in the twin it would be the file {manifest}."
        )


def require_backend(spec: RunSpec) -> None:
    """Require the packages of the spec's backend that the twin does not bring itself.

    Raises:
        MachineUnfit: Naming the packages to install.
    """
    if spec.compute.backend_description.needs_slurm:
        try:
            packages.require()
        except SlurmMissing as missing:
            raise MachineUnfit(f"compute.backend: {missing}") from None


def require_nodes(spec: RunSpec, slurm: SlurmSettings) -> None:
    """The twin's node groups, or its partitions of Slurm, have to have room for the gang.

    Raises:
        GangTooLarge: If they never have.
    """
    if not spec.compute.backend_description.needs_slurm:
        require_fit(spec, nodegroup=nodegroup_name(spec.compute.instance_type), maximum=MAX_NODES)
        return
    default, *_ = slurm.partitions
    queue = spec.compute.queue or default.name
    for partition in slurm.partitions:
        if partition.name == queue:
            require_partition_fit(spec, partition=queue, maximum=partition.num_nodes or slurm.num_nodes)


def require_folders(*, out: Path, home: Path) -> None:
    """The runs' folder and the twin's home have to be writable folders.

    Raises:
        MachineUnfit: Naming the option, the folder and what to do.
    """
    for option, folder, inside in (("--out", out, ()), ("--home", home, ("s3", "volumes"))):
        for each in (folder, *(folder / name for name in inside)):
            try:
                make_private(each)
                with TemporaryFile(dir=each):
                    pass
            except OSError as error:
                raise MachineUnfit(
                    f"{option} {folder}: {each} cannot be written to ({error.strerror}); name another folder with "
                    f"{option}."
                ) from None


def require_shared_memory(shared_memory: Path = Path("/dev/shm")) -> None:  # noqa: S108  (where Linux has it)
    """Processes of a training share memory.

    Raises:
        MachineUnfit: Naming the folder and what to do.
    """
    if sys.platform == "linux" and not shared_memory.is_dir():
        raise MachineUnfit(f"{shared_memory} is missing: training processes share memory there; mount a tmpfs on it.")
