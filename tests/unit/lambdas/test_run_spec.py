"""A run spec is refused with one sentence that names the field, or it can be run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.fakes.runs import SPEC, spec_with
from trainflow.errors import InvalidRunSpec
from trainflow.protocol.s3_urls import S3Url, parse_s3_url
from trainflow.spec.run_spec import MAX_NAME_LENGTH, parse_run_spec
from trainflow.spec.section import FOLDER, Section
from trainflow.workflow.run import job_name, run_id_for


def test_checkpoints_of_own_programs_stay_on_the_nodes_in_a_stored_spec() -> None:
    """The workflow hands on a spec with all of its fields."""
    spec = parse_run_spec(spec_with(checkpoint={"keep_local": {"gib": 8}}))
    assert parse_run_spec(spec.model_dump(mode="json")) == spec
    assert spec.described_checkpoint is None
    described = parse_run_spec(spec_with(workload__module="mine", checkpoint={"path": "step-{step}"}))
    assert described.described_checkpoint == described.checkpoint


def elastic(**limits: int) -> dict[str, Any]:
    return spec_with(compute__backend="pytorchjob", compute__elastic=limits)


def slurm(**fields: Any) -> dict[str, Any]:
    return spec_with(compute__backend="slurm", workload__image=None, **fields)


def dataset(**fields: Any) -> dict[str, Any]:
    return spec_with(dataset={"url": "s3://b/a.tar", **fields})


SHA256 = "0123456789abcdef" * 4

REFUSED = {
    "an unknown field": (spec_with(colour="red"), "colour: there is no such field"),
    "an unknown field in a section": (
        spec_with(compute__nodes=2),
        "compute.nodes: there is no such field; did you mean 'num_nodes'?",
    ),
    "a later version": (spec_with(version=2), "version: must be 1, got 2"),
    "a name in capitals": (spec_with(name="Bert"), "name: must begin with a lower-case letter"),
    "a name that is too long": (spec_with(name="b" * 31), "name: "),
    "no nodes": (spec_with(compute__num_nodes=0), "compute.num_nodes: must be at least 1, got 0"),
    "nodes in words": (spec_with(compute__num_nodes="two"), "compute.num_nodes: must be a whole number, got 'two'."),
    "nodes in quotes": (
        spec_with(compute__num_nodes="2"),
        "compute.num_nodes: must be a whole number, got '2'; remove its quotes.",
    ),
    "restarts that are true": (
        spec_with(limits__max_restarts=True),
        "limits.max_restarts: must be a whole number, got True.",
    ),
    "a version that is true": (spec_with(version=True), "version: must be a whole number, got True."),
    "dollars in quotes": (
        spec_with(limits__max_usd="1e3"),
        "limits.max_usd: must be a number, got '1e3'; remove its quotes.",
    ),
    "an unknown backend": (spec_with(compute__backend="torque"), "compute.backend: must be 'job', 'jobset', "),
    "a pod of two nodes": (
        spec_with(compute__backend="pod"),
        "compute: backend 'pod' is one node, but num_nodes is 2; choose 'job', or ask for one node.",
    ),
    "a queue of a backend without queues": (
        spec_with(compute__queue="q"),
        "compute: queue is 'q', but backend 'job' has no queues; ",
    ),
    "an elastic job": (
        spec_with(compute__elastic={"min_nodes": 1, "max_nodes": 2}),
        "compute: backend 'job' has no elastic jobs; remove elastic, or choose 'pytorchjob'.",
    ),
    "elastic limits the wrong way round": (
        elastic(min_nodes=3, max_nodes=2),
        "compute: elastic.min_nodes is 3 and elastic.max_nodes is 2; swap them.",
    ),
    "more nodes than elastic allows": (
        elastic(min_nodes=3, max_nodes=4),
        "compute: num_nodes is 2, but elastic allows 3 to 4; choose a number between.",
    ),
    "a name too long for its backend": (
        spec_with(name="b" * 23, compute__backend="jobset"),
        "name has 23 characters, but the names that backend 'jobset' makes of it for pods on 2 nodes leave room for 22",
    ),
    "a queue in capitals": (spec_with(compute__backend="volcano", compute__queue="Q"), "compute.queue: must be the"),
    "an image on Slurm": (
        spec_with(compute__backend="slurm"),
        "run spec: workload.image is set, but Slurm runs no containers; remove it, and name the nodes' virtual "
        "environment with workload.python_environment if it is not the deployment's.",
    ),
    "a writable root on Slurm": (
        slurm(workload__writable_root=True),
        "run spec: workload.writable_root is of containers, and Slurm runs none; remove it.",
    ),
    "a priority class on Slurm": (
        slurm(compute__priority_class="high"),
        "compute: priority_class is 'high', but Slurm has none; remove it, and name a partition of higher priority as ",
    ),
    "an elastic job on Slurm": (
        slurm(compute__elastic={"min_nodes": 1, "max_nodes": 2}),
        "compute: backend 'slurm' has no elastic jobs; remove elastic, or choose 'pytorchjob'.",
    ),
    "a virtual environment in an image": (
        spec_with(workload__python_environment="/opt/venv"),
        "run spec: workload.python_environment is a folder on Slurm's nodes, but backend 'job' runs an image; "
        "remove it, or ",
    ),
    "a virtual environment somewhere": (
        slurm(workload__python_environment="venv"),
        "workload.python_environment: must be the full path of a folder on the nodes, without a colon, got 'venv'",
    ),
    "a virtual environment under its former name": (
        slurm(workload__environment="/opt/venv"),
        "workload.environment is called workload.python_environment now; rename it.",
    ),
    "no image where one is run": (
        spec_with(workload__image=None),
        "run spec: workload.image is missing, and backend 'job' runs an image; add it.",
    ),
    "an argument that no command line holds": (
        spec_with(workload__arguments={"name": "a\x00b"}),
        "workload.arguments.name: must hold no NUL character",
    ),
    "an unknown instance type": (
        spec_with(compute__instance_type="trn1.48xlarge"),
        "compute.instance_type: 'trn1.48xlarge' is not supported; choose another such as trn2.48xlarge, ",
    ),
    "more processes than cores": (
        spec_with(compute__processes_per_node=33),
        "processes_per_node is 33, but a trn1.32xlarge has 32 NeuronCores",
    ),
    "a number of processes that Neuron has no collectives for": (
        spec_with(compute__processes_per_node=16),
        "compute: processes_per_node is 16, but Neuron supports 1, 2, 8 or 32 on a trn1.32xlarge; choose one of them.",
    ),
    "a number of processes that Neuron has no collectives for on trn2": (
        spec_with(compute__instance_type="trn2.48xlarge", compute__processes_per_node=32),
        "compute: processes_per_node is 32, but Neuron supports 1, 4, 16 or 64 on a trn2.48xlarge; choose one of them.",
    ),
    "nodes that cannot talk to each other": (
        spec_with(compute={"instance_type": "trn1.2xlarge", "num_nodes": 2, "processes_per_node": 2}),
        "compute: num_nodes is 2, but a trn1.2xlarge has no EFA, without which Neuron trains on one node alone; ask "
        "for 1 node, or for trn1.32xlarge, trn1n.32xlarge, trn2.3xlarge or trn2.48xlarge.",
    ),
    "a gang that could grow to nodes that cannot talk": (
        spec_with(
            compute={
                "instance_type": "trn1.2xlarge",
                "backend": "pytorchjob",
                "elastic": {"min_nodes": 1, "max_nodes": 3},
            }
        ),
        "compute: elastic.max_nodes is 3, but a trn1.2xlarge has no EFA",
    ),
    "two programs": (spec_with(workload__script="train.py"), "needs exactly one of 'module', 'script' and 'command'"),
    "a script outside the image": (
        spec_with(workload={"script": "../train.py", "image": "i"}),
        "workload.script: must be a path relative to",
    ),
    "an image's address": (
        spec_with(workload__image="https://registry.example/trainer"),
        "workload.image: must be the name of a container image: a repository in lower case, without https://",
    ),
    "an image by a tag that no registry takes": (
        spec_with(workload__image="registry.example/trainer:größe"),
        "workload.image: must be the name of a container image",
    ),
    "an image by half a digest": (
        spec_with(workload__image="registry.example/trainer@sha256:0123"),
        "workload.image: must be the name of a container image",
    ),
    "a mapping as an argument": (
        spec_with(workload__arguments={"lr": {"a": 1}}),
        "workload.arguments.lr: must be text",
    ),
    "a list of lists as an argument": (
        spec_with(workload__arguments={"lr": [[1]]}),
        "workload.arguments.lr: must be text",
    ),
    "an empty command": (
        spec_with(workload={"command": [], "image": "i"}),
        "workload.command: must not be empty.",
    ),
    "true as a word": (
        spec_with(workload={"command": ["train", True], "image": "i"}),
        "workload.command.1: must be text or a number, got true; put it in quotes.",
    ),
    "a placeholder that does not exist": (
        spec_with(workload__arguments={"out": "{run_folder}/x"}),
        "workload: arguments.out has the unknown placeholder {run_folder}; use one of {data_dir}, {run_dir}, "
        "{cache_dir}, {run_id}, {rank}, or write {{run_folder}} for the text {run_folder}.",
    ),
    "a rank that torchrun does not fill in": (
        spec_with(workload__positional=["{rank}"]),
        "workload: positional has the placeholder {rank}, which only the launchers 'none' and 'mpi' fill in",
    ),
    "a rank in a variable": (
        spec_with(workload__launcher="none", workload__env={"R": "{rank}"}),
        "workload: env has the placeholder {rank}, which only the launchers",
    ),
    "runs to continue without known checkpoints": (
        spec_with(workload__module="mine", resume_from=["bert-1"]),
        "resume_from names a run, but nothing says where the program's checkpoints are; describe them in the section "
        "checkpoint.",
    ),
    "a path in place of a run to continue": (
        spec_with(resume_from=["../bert"]),
        "resume_from.0: must begin with a lower-case letter and hold only lower-case letters, digits and dashes",
    ),
    "data that is not there": (
        spec_with(dataset=None, workload__env={"DATA": "{data_dir}"}),
        "workload has the placeholder {data_dir}, but there is no dataset; add it, or a path.",
    ),
    "a variable of the workflow's": (
        spec_with(workload__env={"TRAINFLOW_RUN_ID": "x"}),
        "workload: env.TRAINFLOW_RUN_ID is a variable that the workflow sets; choose another name.",
    ),
    "the compile cache's variable": (
        spec_with(workload__env={"NEURON_COMPILE_CACHE_URL": "/x"}),
        "workload: env.NEURON_COMPILE_CACHE_URL is a variable that the workflow sets; choose another name.",
    ),
    "a variable that no shell takes": (
        spec_with(workload__env={"A-B": "x"}),
        "workload.env.A-B: must be the name of an environment variable",
    ),
    "a variable in two places": (
        spec_with(workload__env={"A": "x"}, workload__secrets={"A": {"name": "s", "key": "k"}}),
        "workload: A is in env and in secrets; remove one of them.",
    ),
    "a secret in the spec": (
        spec_with(workload__secrets={"TOKEN": "hf_123"}),
        "workload.secrets.TOKEN: must be a mapping of fields.",
    ),
    "a secret of two systems": (
        spec_with(workload__secrets={"A": {"name": "s", "secrets_manager": "s", "key": "k"}}),
        "workload.secrets.A: needs exactly one of 'name' and 'secrets_manager'.",
    ),
    "a Kubernetes Secret without a key": (
        spec_with(workload__secrets={"A": {"name": "s"}}),
        "workload.secrets.A: key is missing; name the key of the value in the Kubernetes Secret.",
    ),
    "an address in place of a secret's name": (
        spec_with(workload__secrets={"A": {"secrets_manager": "https://example.com"}}),
        "workload.secrets.A.secrets_manager: must be the name or the ARN of a secret in AWS Secrets Manager",
    ),
    "a Secrets Manager secret with Slurm": (
        slurm(workload__secrets={"A": {"secrets_manager": "s"}}),
        "workload.secrets are for Kubernetes backends alone, and the backend is 'slurm'; remove them.",
    ),
    "a secret with Slurm": (
        slurm(workload__secrets={"A": {"name": "s", "key": "k"}}),
        "workload.secrets are for Kubernetes backends alone, and the backend is 'slurm'; remove them.",
    ),
    "a volume with Slurm": (
        slurm(workload__volumes=[{"mount": "/models", "claim": "models"}]),
        "workload.volumes are for Kubernetes backends alone, and the backend is 'slurm'; remove them.",
    ),
    "a volume over the run's folder": (
        spec_with(workload__volumes=[{"mount": "/runs/x", "claim": "c"}]),
        "workload.volumes.0.mount: '/runs/x' is below /runs, which every container has; choose another folder.",
    ),
    "a volume at the root": (
        spec_with(workload__volumes=[{"mount": "/", "claim": "c"}]),
        "workload.volumes.0.mount: must be the full path of a folder, without '.' and '..', got '/'.",
    ),
    "a volume of two kinds": (
        spec_with(workload__volumes=[{"mount": "/m", "claim": "c", "empty_dir_gib": 1}]),
        "workload.volumes.0: needs exactly one of 'claim', 'config_map' and 'empty_dir_gib'.",
    ),
    "two volumes in one folder": (
        spec_with(workload__volumes=[{"mount": "/m", "claim": "a"}, {"mount": "/m", "claim": "b"}]),
        "workload: volumes: '/m' is mounted twice; choose another folder for one of them.",
    ),
    "an elastic gang without torchrun": (
        elastic(min_nodes=1, max_nodes=2) | {"workload": {"module": "m", "image": "i", "launcher": "mpi"}},
        "workload.launcher is 'mpi', but only 'torchrun' starts elastic gangs; choose it, or remove compute.elastic.",
    ),
    "an elastic gang of a command": (
        elastic(min_nodes=1, max_nodes=2) | {"workload": {"command": ["m"], "image": "i"}},
        "workload.command is set, but elastic gangs run Python programs; ",
    ),
    "checkpoints of our own program": (
        spec_with(checkpoint={"path": "step-{step}"}),
        "checkpoint.path is set, but trainer.pretrain finds its checkpoints itself; remove all fields of the section "
        "but keep_local.",
    ),
    "spares of an elastic gang": (
        elastic(min_nodes=1, max_nodes=2) | {"compute": {**elastic(min_nodes=1, max_nodes=2)["compute"], "spares": 1}},
        "compute: spares is 1, but an elastic gang goes on with fewer nodes; remove one of them.",
    ),
    "spares of Slurm": (
        slurm(compute__spares=1),
        "compute: spares is 1, but Slurm's jobs wait in a partition, which holds none for a run; remove it.",
    ),
    "checkpoints of another program without a path": (
        spec_with(workload__module="mine", checkpoint={"resume": ["--resume"]}),
        "checkpoint.path is missing; add the path of the program's checkpoints below the run's folder.",
    ),
    "another program's checkpoints on the nodes": (
        spec_with(workload__module="mine", checkpoint={"path": "step-{step}", "keep_local": {"gib": 1}}),
        "checkpoint.keep_local is for Trainflow's own programs, and any other writes its checkpoints itself; remove "
        "it.",
    ),
    "a folder in memory without a size": (
        spec_with(checkpoint={"keep_local": {}}),
        "checkpoint.keep_local: gib is missing, which limits the folder in memory; add it, at best three times a "
        "checkpoint's size.",
    ),
    "a size of a folder on disks": (
        spec_with(checkpoint={"keep_local": {"medium": "nvme", "gib": 8}}),
        "checkpoint.keep_local: gib limits memory, but medium is 'nvme'; remove it.",
    ),
    "more checkpoints than fit into memory": (
        spec_with(checkpoint={"keep_local": {"gib": 300}}),
        "checkpoint.keep_local.gib is 300, but a pod on a trn1.32xlarge has 455 GiB of memory, and the program needs "
        "half of it; use at most 227.",
    ),
    "more checkpoints than fit into the memory of a fallback": (
        spec_with(
            compute__instance_type="trn1.32xlarge",
            compute__fallback=["trn1.2xlarge"],
            compute__num_nodes=1,
            compute__processes_per_node=2,
            checkpoint={"keep_local": {"gib": 100}},
        ),
        "checkpoint.keep_local.gib is 100, but a pod on a trn1.2xlarge has ",
    ),
    "disks that the nodes lack": (
        spec_with(
            compute__instance_type="c7i.4xlarge",
            compute__processes_per_node=1,
            checkpoint={"keep_local": {"medium": "nvme"}},
        ),
        "checkpoint.keep_local.medium is 'nvme', but a c7i.4xlarge has no such disks; use 'memory'.",
    ),
    "checkpoints on nodes without restarts in the pods": (
        spec_with(limits__restart_in_place=False, checkpoint={"keep_local": {"gib": 8}}),
        "checkpoint.keep_local helps restarts in the pods, but limits.restart_in_place is false; change one of them.",
    ),
    "checkpoints on nodes without restarts": (
        spec_with(limits__max_restarts=0, checkpoint={"keep_local": {"gib": 8}}),
        "checkpoint.keep_local helps restarts in the pods, but limits.max_restarts is 0; change one of them.",
    ),
    "checkpoints on nodes of Slurm": (
        slurm(checkpoint={"keep_local": {"gib": 8}}),
        "checkpoint.keep_local helps restarts in the pods, which Slurm's jobs do not have; remove it.",
    ),
    "checkpoints on nodes of elastic gangs": (
        elastic(min_nodes=1, max_nodes=2) | {"checkpoint": {"keep_local": {"gib": 8}}},
        "checkpoint.keep_local helps restarts in the pods, which elastic gangs do not have; remove it.",
    ),
    "checkpoints outside of the run's folder": (
        spec_with(checkpoint={"path": "../step-{step}"}),
        "checkpoint.path: must be a path below the run's folder, without '.' and '..', got '../step-{step}'.",
    ),
    "checkpoints without a name": (
        spec_with(checkpoint={"path": "*"}),
        "checkpoint.path: must name the checkpoints, with {step} at most once, got '*'.",
    ),
    "a marker in a folder": (
        spec_with(checkpoint={"path": "step-{step}", "marker": "a/b"}),
        "checkpoint.marker: must be the name of a file, without a folder, got 'a/b'.",
    ),
    "an unknown placeholder for a checkpoint": (
        spec_with(checkpoint={"path": "step-{step}", "resume": ["{run_dir}"]}),
        "checkpoint: resume has the placeholder {run_dir}, but only {checkpoint} is filled in there.",
    ),
    "a command that is to be precompiled": (
        spec_with(workload={"command": ["train"], "image": "i"}, precompile__enabled=True),
        "precompile.enabled is true, but a command cannot be ended after a few steps; name the program's flag for "
        "their number as precompile.steps_argument, or turn precompilation off.",
    ),
    "dashes in a flag": (spec_with(workload__arguments={"--lr": 1}), "workload.arguments.--lr: must be a flag's name"),
    "a data set elsewhere": (
        dataset(url="http://x/a.tar"),
        "dataset.url: 'http://x/a.tar' must be s3://bucket/key, s3://bucket/prefix/ or https://host/path.",
    ),
    "a data set that is no archive": (
        dataset(url="s3://b/a.zip"),
        "dataset.url: 's3://b/a.zip' must end in .tar, .tar.gz, .tgz, .tar.bz2, .tar.xz, .tar.zst for an archive, "
        "or in s3://…/ for all ",
    ),
    "a whole bucket": (dataset(url="s3://b/"), "dataset.url: 's3://b/' must be a prefix of which folders can be made"),
    "a prefix that leads upwards": (dataset(url="s3://b/a/../c/"), "must be a prefix of which folders can be made"),
    "a folder of a web server": (dataset(url="https://x/a/", sha256=SHA256), "dataset.url: 'https://x/a/' must end in"),
    "a password in a URL": (
        dataset(url="https://me:secret@x/a.tar", sha256=SHA256),
        "dataset.url: must hold no user name and no password: specs are kept, logged and shown to everybody.",
    ),
    "an archive from the web without a checksum": (
        dataset(url="https://x/a.tar"),
        "dataset: sha256 is missing, and an https:// archive needs it; add what `sha256sum` prints of it.",
    ),
    "a checksum that is none": (dataset(sha256="A" * 64), "dataset.sha256: must be 64 hexadecimal digits in lower"),
    "one checksum of many objects": (
        dataset(url="s3://b/a/", sha256=SHA256),
        "dataset: sha256 is of one archive, but the url is a prefix; use manifest_url, or remove sha256.",
    ),
    "a region of a web server": (
        dataset(url="https://x/a.tar", sha256=SHA256, region="us-west-2"),
        "dataset: public and region are said of a bucket, but the url is https://; remove them.",
    ),
    "a region in words": (dataset(region="Oregon"), "dataset.region: must be an AWS Region such as us-west-2"),
    "fewer than no shards": (dataset(min_shards=-1), "dataset.min_shards: must be at least 0, got -1"),
    "a manifest elsewhere": (
        dataset(manifest_url="https://x/manifest"),
        "dataset.manifest_url: 'https://x/manifest' must be s3://bucket/key.",
    ),
    "polling too often": (spec_with(limits={"poll_seconds": 1}), "limits.poll_seconds: must be at least 10, got 1"),
}


@pytest.mark.parametrize(("document", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_field_is_named(document: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRunSpec, match=re.escape(sentence)) as refused:
        parse_run_spec(document)
    assert "\n" not in str(refused.value)


def test_an_execution_that_an_earlier_version_started_without_a_python_environment_is_read() -> None:
    assert parse_run_spec(spec_with(workload__environment=None)) == parse_run_spec(SPEC)


@pytest.mark.parametrize("field", ["version", "name", "workload", "compute"])
def test_a_missing_field_is_named(field: str) -> None:
    document = {name: value for name, value in SPEC.items() if name != field}
    with pytest.raises(InvalidRunSpec, match=rf"^{field}: .*missing"):
        parse_run_spec(document)


def test_every_bad_field_is_named_at_once() -> None:
    with pytest.raises(InvalidRunSpec, match=r"num_nodes.*backend"):
        parse_run_spec(spec_with(compute__num_nodes=0, compute__backend="x"))


@pytest.mark.parametrize("document", [None, [], "bert", 3])
def test_a_document_that_is_no_mapping_is_refused(document: Any) -> None:
    with pytest.raises(InvalidRunSpec, match="must be a mapping"):
        parse_run_spec(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    field=st.sampled_from(["name", "workload", "compute", "dataset", "limits", "precompile", "teardown"]), value=JSON
)
def test_whatever_stands_in_a_field_is_a_spec_or_a_sentence(field: str, value: Any) -> None:
    try:
        parse_run_spec({**SPEC, field: value})
    except InvalidRunSpec as refused:
        assert str(refused).startswith(field)


@pytest.mark.parametrize(
    ("key", "folder"),
    [
        ("a/Wiki_Corpus.128.tar", "wiki-corpus-128"),
        ("x.tar.gz", "x"),
        ("y.tgz", "y"),
        ("z.tar.zst", "z"),
        ("z.tar.bz2", "z"),
        ("z.tar.xz", "z"),
        ("corpus#1.tar", "corpus-1"),
        ("a?b.tar", "a-b"),
        ("_.tar", "dataset"),
        ("data/Wiki.v2/", "wiki-v2"),
        ("what?.tar/#1.tar", "1"),
        (f"{'x' * 70}.tar", "x" * 63),
    ],
)
def test_a_data_set_is_unpacked_into_a_folder_named_after_its_archive(key: str, folder: str) -> None:
    spec = parse_run_spec(spec_with(dataset={"url": f"s3://bucket/{key}"}))
    assert spec.dataset is not None
    assert spec.dataset.folder == folder


URL_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    scheme=st.sampled_from(["s3://", "https://", "file://", "s3:/", ""]),
    rest=URL_TEXT,
    ending=st.sampled_from([".tar", ".tar.zst", "/", "/x/", "/a.tgz?v=1", ""]),
    sha256=st.none() | st.just(SHA256),
    public=st.booleans(),
    name=st.none() | st.from_regex(FOLDER),
)
def test_any_url_is_refused_in_a_sentence_or_leads_to_one_folder_and_source(
    scheme: str, rest: str, ending: str, sha256: str | None, public: bool, name: str | None
) -> None:
    url = f"{scheme}{rest}{ending}"
    try:
        found = parse_run_spec(dataset(url=url, sha256=sha256, public=public, name=name)).dataset
    except InvalidRunSpec as refused:
        assert str(refused).startswith("dataset")
        return
    assert found is not None
    assert re.match(FOLDER, found.folder)
    if found.in_s3:
        assert f"s3://{found.bucket}/{found.key}" == url
        assert parse_s3_url(url) == S3Url(found.bucket, found.key)
        assert found.bucket and found.key.strip("/")
    else:
        assert found.sha256


@pytest.mark.parametrize("path", sorted(Path("runs").glob("*.yaml")), ids=lambda path: path.name)
def test_every_spec_of_the_repository_is_valid(path: Path) -> None:
    parse_run_spec(yaml.safe_load(path.read_text()))


def test_the_longest_name_leaves_room_for_a_pods_host_name() -> None:
    run_id = run_id_for(f"{'n' * MAX_NAME_LENGTH}-0123456789ab")
    assert len(f"{job_name(run_id, 'precompile', 99)}-1023") <= 63  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("execution", "run_id"),
    [
        ("demo-0123456789ab", "demo-0123456789ab"),
        ("5D6F0CF1-8F4E-4A0B-9B5E-1C2D3E4F5A6B", "run-5d6f0cf1-8f4e-4a0b-9b5e-1c2d3e4f5a6b"),
    ],
)
def test_an_executions_name_becomes_a_run_id_fit_for_kubernetes(execution: str, run_id: str) -> None:
    assert run_id_for(execution) == run_id


@pytest.mark.parametrize("execution", ["under_score", "a" * 44, "-a", "a-", ""])
def test_an_executions_name_that_does_not_fit_is_refused(execution: str) -> None:
    with pytest.raises(ValueError, match="must be letters, digits and dashes"):
        run_id_for(execution)


def number_fields() -> list[tuple[type[Section], str]]:
    """Sections of the spec, and their fields that are numbers according to the JSON Schema."""
    return [
        (section, name)
        for section in Section.__subclasses__()
        for name, field in section.model_json_schema()["properties"].items()
        if {each.get("type") for each in field.get("anyOf", [field])} - {"null"} in ({"integer"}, {"number"})
    ]


def test_the_numbers_of_a_spec_are_those_of_its_limits_and_more() -> None:
    found = {name for _, name in number_fields()}
    assert found >= {
        *("version", "num_nodes", "processes_per_node", "min_nodes", "max_restarts", "max_expansion", "min_shards"),
        *("steps", "settled_seconds", "shared_memory_gib", "empty_dir_gib", "stall_minutes", "max_usd"),
    }


@pytest.mark.parametrize(("section", "field"), number_fields())
def test_a_number_is_neither_text_nor_true(section: type[Section], field: str) -> None:
    def reasons(value: Any) -> list[str]:
        with pytest.raises(ValidationError) as invalid:
            section.model_validate({field: value, "no such field": None})
        return [error["type"] for error in invalid.value.errors() if error["loc"] == (field,)]

    assert reasons(True) == reasons(False) == reasons("2") == reasons("") == ["value_error"]
    for number in (2, 2.0):
        assert "value_error" not in reasons(number), "whole numbers are numbers, however JSON writes them"


@pytest.mark.parametrize("hours", [2, 2.5])
def test_a_number_of_hours_may_be_whole(hours: float) -> None:
    limits = parse_run_spec(spec_with(limits__max_duration_hours=hours, limits__max_restarts=2.0)).limits
    assert (limits.max_duration_hours, limits.max_restarts) == (hours, 2)
