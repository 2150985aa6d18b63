"""docs/migrating.md: every command of the tutorials has a row, and what a row names exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from trainflow.cli.main import app
from trainflow.configuration.deployment import Configuration
from trainflow.spec.run_spec import RunSpec

PAGE = Path("docs/migrating.md")

PROGRAMS = (
    *("aws configure", "aws ecr create-repository", "aws ecr describe-repositories", "aws ecr get-login-password"),
    *("aws cloudformation create-stack", "aws cloudformation delete-stack", "aws ecr delete-repository"),
    *("aws ec2 describe-instance-type-offerings", "aws ec2 describe-availability-zones", "aws s3 mb", "aws s3 cp"),
    *("aws iam create-policy", "eksctl create cluster", "eksctl create nodegroup", "eksctl create iamserviceaccount"),
    *("eksctl get cluster", "eksctl get nodegroup", "eksctl utils associate-iam-oidc-provider"),
    *("eksctl delete nodegroup", "eksctl delete cluster", "docker build", "docker tag", "docker push", "docker run"),
    *("finch build", "torchrun --standalone", "torchx run", "pip3 install torchx", "pcluster create-cluster"),
    *("determine_eks_azs.sh", "create_eks_cluster_manifest.sh", "create_cfn_params.sh", "find_rank0_pod.sh"),
    *("create_eks_trn1_nodegroup_manifests.sh", "create_volcano_test_queue.sh", "create_fsx_serviceaccount.sh"),
    *("create_storageclass_manifest.sh", "create_lustre_pv_claim.sh", "create_cmd_shell_pod_manifest.sh"),
    *("deploy_tensorboard_pod.sh", "kubectl version", "kubectl get vcjob", "kubectl get pods", "kubectl get pvc"),
    *("kubectl get csidriver", "kubectl get crd", "kubectl get nodes", "kubectl get events", "kubectl get pytorchjob"),
    *("kubectl get serviceaccounts", "kubectl describe pod", "kubectl describe pytorchjob", "kubectl logs -f"),
    *("kubectl logs -l", "kubectl exec -it", "kubectl delete vcjob", "kubectl delete pod", "kubectl delete -f"),
    *("etcd.yaml", "volcano-development.yaml", "k8s-neuron-device-plugin.yml", "efa-k8s-device-plugin.yml"),
    *("training-operator", "aws-fsx-csi-driver", "trn1_mlp.yaml", "pytorch-job-cpu.yaml", "debug-pod.yaml"),
    *("neuron-top", "nslookup", "ping", "nc -zv", "wget", "sinfo", "squeue", "scontrol show node", "tail -f"),
    *("sbatch --nodes 2", "sbatch --exclusive --nodes=16", "neuron_parallel_compile", "pretrain_ph1.sh", "rmmod"),
    *("sysctl -w", "/etc/hosts", "XLA_USE_BF16", "BUCKET_CAP_MB", "/scratch", "--ssh-access", "--with-oidc"),
    *("--workspace", "--script_args", "--cacheset", "--precompile True", "generateAppDef", "git clone", "tar -xf"),
)
"""What the five tutorials have a person type, by how it begins; the tutorials themselves are not in this repository."""


def rows() -> list[list[str]]:
    """The cells of every row: which tutorials, the command, what it is now."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| 0")]
    return [[cell.strip() for cell in row] for row in cells]


def code() -> list[str]:
    """What stands in backquotes in the last column."""
    return [found for row in rows() for found in re.findall(r"`([^`]+)`", row[2])]


@pytest.mark.parametrize("begins", PROGRAMS)
def test_a_command_of_the_tutorials_has_a_row(begins: str) -> None:
    assert [row for row in rows() if begins in row[1]]


def test_every_row_says_what_has_become_of_its_command() -> None:
    assert rows()
    for row in rows():
        assert len(row) == 3 and re.fullmatch(r"00[0-4](, 00[0-4])*", row[0]) and all(row), row
    assert {tutorial for row in rows() for tutorial in row[0].split(", ")} == {"000", "001", "002", "003", "004"}


def test_every_command_of_ours_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", Path("Makefile").read_text(), re.MULTILINE))
    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    named = " ".join(code())
    assert (made := set(re.findall(r"\bmake ([a-z-]+)", named))) and made <= targets
    assert (used := set(re.findall(r"\btrainflow ([a-z-]+)", named))) and used <= commands
    for module in re.findall(r"python -m ([\w.]+)", named):
        assert Path(f"{module.replace('.', '/')}.py").is_file()


def test_every_file_exists() -> None:
    files = set(re.findall(r"\b((?:runs|config)/[\w./-]+\.yaml)", " ".join(code())))
    links = re.findall(r"\]\(([^)#]+)", PAGE.read_text())
    assert files and links
    assert not [name for name in files - {"config/mine.yaml"} if not Path(name).is_file()]
    assert not [link for link in links if not (PAGE.parent / link).resolve().exists()]


FIELD = re.compile(
    r"^((?:network|capacity|cluster|storage|slurm|dataset|precompile|workload|compute)(?:\.[a-z_]+)*)(?:: (.*))?$"
)


def test_every_field_exists() -> None:
    fields = [match for text in code() if (match := FIELD.match(text))]
    assert len(fields) > 10
    for match in fields:
        document: object = yaml.safe_load(match[2]) if match[2] else None
        assert _has_field(match[1].split(".")), match[0]
        assert match[2] is None or document is not None


def _has_field(path: list[str]) -> bool:
    return any(_reaches(schema, schema, path) for schema in _schemas())


@cache
def _schemas() -> tuple[dict[str, Any], ...]:
    return Configuration.model_json_schema(), RunSpec.model_json_schema()


def _reaches(schema: dict, root: dict, path: list[str]) -> bool:  # type: ignore[type-arg]
    if "$ref" in schema:
        return _reaches(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, path)
    if not path:
        return True
    if any(_reaches(each, root, path) for each in schema.get("anyOf", ())):
        return True
    if "patternProperties" in schema:
        return True  # a mapping of names that are free
    found = schema.get("properties", {}).get(path[0])
    return found is not None and _reaches(found, root, path[1:])
