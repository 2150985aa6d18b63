"""Nodes of the Slurm cluster; none of them exist until a job waits for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_pcs as pcs
from constructs import Construct

from stacks.capacity.launch_template import NodeTemplate
from stacks.shared.session_manager import let_sessions_in
from stacks.slurm.controller import Controller
from stacks.storage.lustre import SharedFileSystem
from stacks.storage.runs import let_runs_use
from trainflow.configuration.nodes import Mode
from trainflow.protocol.pods import FOLDERS, JOBS, SCRATCH_MOUNT, USER

if TYPE_CHECKING:
    from stacks.storage.stack import StorageStack

PURCHASES: Mapping[Mode, str] = {
    "on-demand": "ONDEMAND",
    "spot": "SPOT",
    "capacity-block": "CAPACITY_BLOCK",
    "reservation": "ONDEMAND",
}

SHARED_FOLDER = "/fsx"
"""Mount point of the file system on the nodes."""

LOGIN = "login"
"""Name of the login node's group, and the end of its instance's name."""

PCS_PATH = "/aws-pcs/"
"""PCS passes on roles and instance profiles below this path, or with names that begin with AWSPCS."""


def claims(user: str) -> dict[str, object]:
    """The token's user, whom PCS has to know, since it reads no directory (AWS PCS user guide, REST API)."""
    identity = {"gecos": "Trainflow", "dir": f"/home/{user}", "shell": "/bin/bash", "gids": [USER]}
    return {"uid": USER, "gid": USER, "id": identity}


def queue_name(instance_type: str) -> str:
    """The partition that holds the nodes of an instance type; PCS allows no dots."""
    return instance_type.replace(".", "-")


SCRATCH_SCRIPT = f"""\
shopt -s nullglob
disks=$(for link in /dev/disk/by-id/nvme-Amazon_EC2_NVMe_Instance_Storage_*; do readlink -e "$link"; done | sort -u)
count=$(wc -w <<< "$disks")
if [[ $count -gt 0 ]]; then
    device=$disks
    if [[ $count -gt 1 ]]; then
        device=/dev/md/scratch
        command -v mdadm || dnf install -y mdadm
        mdadm --create $device --force --run --level=0 --raid-devices="$count" $disks
    fi
    mkfs.xfs -f -K $device
    mkdir -p {SCRATCH_MOUNT}
    mount -o noatime $device {SCRATCH_MOUNT}
    chmod 1777 {SCRATCH_MOUNT}
fi
"""
"""All NVMe disks as one volume for all users, as ParallelCluster's EphemeralVolume. `-K` omits the discards: the disks
come discarded (EC2 user guide, instance store TRIM). Without such disks, jobs use the root disk."""


LOCKED_MEMORY_SCRIPT = """\
mkdir -p /etc/systemd/system.conf.d /etc/security/limits.d
printf '[Manager]\\nDefaultLimitMEMLOCK=infinity\\n' > /etc/systemd/system.conf.d/locked-memory.conf
printf '* - memlock unlimited\\n' > /etc/security/limits.d/locked-memory.conf
systemctl daemon-reexec
"""
"""EFA locks the memory that it registers, and systemd lets services lock 8 MiB (systemd-system.conf(5)). Jobs have the
limit of slurmd, whatever PCS calls its service, or that of the login shell that typed `sbatch` (pam_limits)."""


def mount(shared: SharedFileSystem, *, local_disks: bool) -> str:
    """User data that mounts the file system and lets jobs lock memory before slurmd starts.

    It is a MIME archive, which PCS merges with its own.

    A node without the file system fails its first job with a message; one that terminated itself would be replaced
    forever.

    Args:
        shared: The file system.
        local_disks: Whether the nodes have NVMe disks, which become `/scratch`.
    """
    scratch = SCRATCH_SCRIPT if local_disks else ""
    folders = " ".join(f"{SHARED_FOLDER}/{folder}" for folder in (*FOLDERS, JOBS))
    script = f"""\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="==TRAINFLOW=="

--==TRAINFLOW==
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
set -euo pipefail
{LOCKED_MEMORY_SCRIPT}command -v mount.lustre || dnf install -y lustre-client
mkdir -p {SHARED_FOLDER}
echo '{shared.dns_name}@tcp:/{shared.mount_name} {SHARED_FOLDER} lustre noatime,flock,_netdev 0 0' >> /etc/fstab
mount -t lustre -o noatime,flock {shared.dns_name}@tcp:/{shared.mount_name} {SHARED_FOLDER}
mkdir -p {folders}
chown {USER}:{USER} {folders}
{scratch}
--==TRAINFLOW==--
"""
    return cdk.Fn.base64(script)


class NodeProfile(Construct):
    """The role of the nodes: they register with PCS, and their jobs have the pods' permissions for the buckets."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        controller: Controller,
        storage: StorageStack,
        sessions: bool = False,
    ) -> None:
        """
        Args:
            scope: The stack.
            construct_id: Of this construct.
            controller: The controller of the cluster.
            storage: The storage stack, whose buckets the jobs use.
            sessions: Whether users may open a shell by Session Manager.
        """
        super().__init__(scope, construct_id)
        self.role = iam.Role(
            self,
            "Role",
            path=PCS_PATH,
            description="Trainflow: nodes of the Slurm cluster, and their jobs",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        )
        let_runs_use(storage, self.role)
        join = iam.PolicyStatement(
            sid="JoinTheCluster",
            actions=["pcs:RegisterComputeNodeGroupInstance"],
            resources=[controller.resource.attr_arn],
        )
        self.role.add_to_policy(join)
        if sessions:
            let_sessions_in(self.role)
        self.resource = iam.InstanceProfile(self, "Profile", path=PCS_PATH, role=self.role)


class NodeGroup(Construct):
    """A group of nodes of one kind. Without a queue, they run no jobs, which makes login nodes."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        instance_types: Sequence[str],
        min_nodes: int,
        max_nodes: int,
        mode: Mode,
        ami_id: str,
        controller: Controller,
        profile: NodeProfile,
        template: NodeTemplate,
        subnet: ec2.ISubnet,
    ) -> None:
        super().__init__(scope, construct_id)
        self.resource = pcs.CfnComputeNodeGroup(
            self,
            "Nodes",
            name=name,
            cluster_id=controller.id,
            ami_id=ami_id,
            custom_launch_template=pcs.CfnComputeNodeGroup.CustomLaunchTemplateProperty(
                template_id=template.resource.ref, version=template.resource.attr_latest_version_number
            ),
            iam_instance_profile_arn=profile.resource.instance_profile_arn,
            instance_configs=[
                pcs.CfnComputeNodeGroup.InstanceConfigProperty(instance_type=kind) for kind in instance_types
            ],
            purchase_option=PURCHASES[mode],
            scaling_configuration=pcs.CfnComputeNodeGroup.ScalingConfigurationProperty(
                min_instance_count=min_nodes, max_instance_count=max_nodes
            ),
            subnet_ids=[subnet.subnet_id],
        )
        # Otherwise a node starts and cannot register.
        self.resource.node.add_dependency(profile.role)
        self._name, self._controller = name, controller

    def add_queue(self) -> None:
        """Make the queue of the group's name, whose jobs run on these nodes."""
        pcs.CfnQueue(
            self,
            "Queue",
            name=self._name,
            cluster_id=self._controller.id,
            compute_node_group_configurations=[
                pcs.CfnQueue.ComputeNodeGroupConfigurationProperty(compute_node_group_id=self.resource.attr_id)
            ],
        )
