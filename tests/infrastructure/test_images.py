"""Images: built by AWS from the packages of pods alone, never overwritten, and made to run as the pods run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_s3 as s3
from aws_cdk import cx_api
from aws_cdk.assertions import Template

from lambdas.backends import job as indexed_job
from lambdas.logic.jobs import Job
from stacks.checks.templates import listed
from stacks.images import context
from stacks.images.stack import TOOLS, ImagesStack, kinds_of_images
from tests.infrastructure.alone import PINNED, Resources, configuration, make_app, of_type, settings, the_only
from trainer.images import smoke
from trainflow.workflow.run import JobRef, Stage

PROJECT = "AWS::CodeBuild::Project"
REPOSITORY = "AWS::ECR::Repository"

FOLDER = Path("trainer/images")
DOCKERFILES = sorted(FOLDER.glob("*.Dockerfile"))
NEURON_BASE = Path("requirements/tools/neuron-base.txt")
UV = Path(sys.executable).with_name("uv")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


@cache
def _assembly(environment: str = "development", torchneuron: str | None = None) -> cx_api.CloudAssembly:
    app = make_app()
    images = {"neuron_base": PINNED, "cpu_base": PINNED, "torchneuron_base": torchneuron}
    ImagesStack(app, "Images", **settings(configuration(environment=environment, images=images)))
    return app.synth()


def _images(environment: str = "development", torchneuron: str | None = None) -> Resources:
    found: Resources = _assembly(environment, torchneuron).get_stack_by_name("Images").template["Resources"]
    return found


def _assets() -> dict[str, Any]:
    """What the deployment uploads, and builds before."""
    assets: dict[str, Any] = json.loads((Path(_assembly().directory) / "Images.assets.json").read_text())
    return assets


def _source() -> Path:
    """What CodeBuild is given, as it is uploaded."""
    (folder,) = (file["source"]["path"] for file in _assets()["files"].values() if file["source"]["packaging"] == "zip")
    return Path(_assembly().directory, folder)


def _instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Instruction and argument, with continued lines joined and comments left out."""
    lines = [line for line in dockerfile.read_text().splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, argument) for name, _, argument in (line.partition(" ") for line in joined.splitlines())]


def _arguments(dockerfile: Path, instruction: str) -> list[str]:
    return [argument for name, argument in _instructions(dockerfile) if name == instruction]


def _pins(path: Path) -> dict[str, str]:
    return {name.lower(): version for name, version in PIN.findall(path.read_text())}


def test_an_image_that_was_pushed_is_never_another_one_tomorrow() -> None:
    repository = the_only(_images(), REPOSITORY)
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
    assert repository["EncryptionConfiguration"]["EncryptionType"] == "KMS"
    assert "countNumber" in repository["LifecyclePolicy"]["LifecyclePolicyText"]


@pytest.mark.parametrize(("environment", "kept"), [("development", False), ("production", True)])
def test_images_go_with_a_development_and_stay_in_production(environment: str, kept: bool) -> None:
    found = _images(environment)
    (repository,) = (resource for resource in found.values() if resource["Type"] == REPOSITORY)
    (key,) = (resource for resource in found.values() if resource["Type"] == "AWS::KMS::Key")
    assert repository["Properties"].get("EmptyOnDelete", False) is not kept
    assert {repository["DeletionPolicy"], key["DeletionPolicy"]} == {"Retain" if kept else "Delete"}


def test_a_deployment_needs_no_docker() -> None:
    assert not _assets()["dockerImages"]


def test_a_build_is_given_the_trainer_and_nothing_else() -> None:
    given = {path.relative_to(_source()) for path in _source().rglob("*") if path.is_file()}
    ours = {path for folder in ("trainer", "trainflow/protocol") for path in Path(folder).rglob("*") if path.is_file()}
    ours.add(Path("trainflow/__init__.py"))
    assert given == {path for path in ours if "__pycache__" not in path.parts}
    assert all((_source() / path).read_bytes() == path.read_bytes() for path in given)


def _does_without_a_device(module: str) -> bool:
    imported = {name.split(".")[0] for name, _ in smoke.imported_modules(smoke.module_file(module))}
    return not imported & smoke.OF_DEVICES


@pytest.mark.parametrize("kind", smoke.ENTRY_POINTS)
def test_what_a_build_is_given_can_run_every_entry_point_by_itself(tmp_path: Path, kind: str) -> None:
    """Every module that an entry point can come to import is there, and the packages of pods are found there only."""
    context.stage(tmp_path)
    modules = sorted(filter(_does_without_a_device, smoke.modules_of_ours(smoke.ENTRY_POINTS[kind])))
    assert any(module.startswith("trainflow.protocol.") for module in modules)
    program = "import importlib, sys\nfor module in sys.argv[1:]:\n    print(importlib.import_module(module).__file__)"
    isolated = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *modules],
        cwd=tmp_path,
        env=isolated,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {Path(line).is_relative_to(tmp_path) for line in done.stdout.splitlines()} == {True}
    assert len(done.stdout.splitlines()) == len(modules)


def test_the_packages_in_a_context_are_compiled_as_the_recipes_do(tmp_path: Path) -> None:
    context.stage(tmp_path)
    for dockerfile in DOCKERFILES:
        *_, last = _arguments(dockerfile, "RUN")
        assert last.split("&&")[0].split() == ["python", "-m", "compileall", "-q", "trainer", "trainflow"]
        assert ("COPY", ". /opt/trainflow/") in _instructions(dockerfile)
    done = subprocess.run([sys.executable, "-m", "compileall", "-q", "trainer", "trainflow"], cwd=tmp_path, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_everything_that_a_recipe_copies_is_in_what_the_build_is_given(dockerfile: Path) -> None:
    for argument in _arguments(dockerfile, "COPY"):
        assert (_source() / argument.split()[0]).exists()


@pytest.mark.parametrize("torchneuron", [None, PINNED])
def test_every_configured_base_has_a_build(torchneuron: str | None) -> None:
    expected = {"neuron": "neuron", "cpu": "cpu", "tools": "tools"} | ({"torchneuron": "neuron"} if torchneuron else {})
    projects = of_type(_images(torchneuron=torchneuron), PROJECT).values()
    assert {project["Name"] for project in projects} == {f"trainflow-image-{kind}" for kind in expected}
    for project in projects:
        kind = project["Name"].removeprefix("trainflow-image-")
        assert f"--file trainer/images/{expected[kind]}.Dockerfile" in project["Source"]["BuildSpec"]
        assert f"BASE={PINNED}" in project["Source"]["BuildSpec"]
        variables = {found["Name"]: found["Value"] for found in project["Environment"]["EnvironmentVariables"]}
        assert variables["TAG"].startswith(f"{kind}-")


def test_a_given_image_for_the_small_jobs_is_not_built() -> None:
    assert TOOLS not in {kind.name for kind in kinds_of_images(configuration(images={"tools": "example.org/tools:1"}))}


def test_builds_end_and_their_logs_too() -> None:
    found = _images()
    for project in of_type(found, PROJECT).values():
        assert project["TimeoutInMinutes"] <= 60
        group = project["LogsConfig"]["CloudWatchLogs"]["GroupName"]["Ref"]
        assert found[group]["Properties"]["RetentionInDays"] == 30
        assert project["Artifacts"] == {"Type": "NO_ARTIFACTS"}


def test_builds_push_to_their_repository_and_read_their_source_and_may_do_nothing_else() -> None:
    found = _images()
    statements = the_only(found, "AWS::IAM::Policy")["PolicyDocument"]["Statement"]
    (repository,) = of_type(found, REPOSITORY)
    for statement in statements:
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        assert not [action for action in actions if "*" in action]
        if "ecr:PutImage" in actions:
            assert statement["Resource"] == {"Fn::GetAtt": [repository, "Arn"]}
        if statement["Resource"] == "*":
            assert actions == ["ecr:GetAuthorizationToken"]


def test_a_build_may_do_with_its_source_what_cdk_grants_a_project_of_its_own() -> None:
    """CDK grants patterns; ours name the actions, and every pattern for reading is used."""
    stack = cdk.Stack()
    bucket = s3.Bucket.from_bucket_name(stack, "Bucket", "sources")
    codebuild.Project(stack, "Project", source=codebuild.Source.s3(bucket=bucket, path="source.zip"))
    theirs = _allowed(Template.from_stack(stack).to_json()["Resources"], "s3:")
    ours = _allowed(_images(), "s3:")
    assert {pattern for pattern in theirs if not any(fnmatch(action, pattern) for action in ours)} == set()
    assert {action for action in ours if not any(fnmatch(action, pattern) for pattern in theirs)} == set()


def _allowed(resources: dict[str, Any], service: str) -> set[str]:
    policies = of_type(resources, "AWS::IAM::Policy").values()
    statements = [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]
    return {action for each in statements for action in listed(each["Action"]) if action.startswith(service)}


def test_a_base_in_another_private_registry_may_be_pulled() -> None:
    base = "763104351884.dkr.ecr.us-east-1.amazonaws.com/torch-neuron@sha256:" + "1" * 64
    statements = the_only(_images(torchneuron=base), "AWS::IAM::Policy")["PolicyDocument"]["Statement"]
    (pull,) = (s for s in statements if "ecr:GetDownloadUrlForLayer" in s["Action"])
    assert pull["Resource"] == "arn:aws:ecr:us-east-1:763104351884:repository/torch-neuron"


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_the_base_is_the_configuration_s_choice(dockerfile: Path) -> None:
    assert _arguments(dockerfile, "FROM") == ["${BASE}"]
    assert _arguments(dockerfile, "ARG") == ["BASE"]
    assert "latest" not in dockerfile.read_text()


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_the_program_runs_as_the_pods_user_and_cannot_change_itself(dockerfile: Path) -> None:
    job = Job(
        ref=JobRef(name="demo-1-publish-1", stage=Stage.PUBLISH, attempt=1, num_nodes=1),
        run_id="demo-1",
        image="image",
        command=("true",),
        deadline_seconds=60,
    )
    (pod,) = (o["spec"]["template"]["spec"] for o in indexed_job.render(job) if o["kind"] == "Job")
    user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    instructions = _instructions(dockerfile)
    after = instructions[instructions.index(("USER", user)) + 1 :]
    assert {name for name, _ in after} <= {"ENTRYPOINT", "CMD"}
    assert not [argument for argument in _arguments(dockerfile, "COPY") if "--chown" in argument]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_no_recipe_fetches_files_unseen_or_holds_a_secret(dockerfile: Path) -> None:
    assert not _arguments(dockerfile, "ADD")
    text = dockerfile.read_text()
    assert not re.search(r"\b(curl|wget|git clone)\b", text)
    assert not re.search(r"secret|token|password|credential|AKIA", text, re.IGNORECASE)


@pytest.mark.parametrize(("kind", "requirements"), [("cpu", "trainer"), ("tools", "small-jobs")])
def test_what_an_image_installs_is_what_the_project_was_tested_with(kind: str, requirements: str) -> None:
    pins, tested = _pins(FOLDER / f"{kind}.txt"), _pins(Path("requirements.txt"))
    assert pins.items() <= tested.items()
    wanted = re.findall(r"^([a-z0-9-]+)", Path(f"requirements/{requirements}.in").read_text(), re.MULTILINE)
    assert set(wanted) <= set(pins)


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_every_recipe_ends_by_importing_whatever_its_image_can_be_asked_to_run(dockerfile: Path) -> None:
    kind = "tools" if dockerfile.name.startswith("tools") else "training"
    *_, last = _arguments(dockerfile, "RUN")
    assert last.endswith(f"python -m trainer.images.smoke {kind}")


def test_a_neuron_image_keeps_the_torch_of_its_base() -> None:
    installed = re.findall(r"^([a-z0-9-]+)", (FOLDER / "neuron.txt").read_text(), re.MULTILINE)
    assert not {"torch", "torch-xla", "torch-neuronx", "numpy"} & set(installed)
    (install,) = (run for run in _arguments(FOLDER / "neuron.Dockerfile", "RUN") if "pip install" in run)
    assert install.index("pip list --format=freeze > /tmp/base.txt") < install.index("--constraint /tmp/base.txt")


def test_a_base_that_lacks_a_package_is_given_the_version_that_the_project_was_tested_with() -> None:
    newest = dict(re.findall(r"^([a-z0-9-]+).*<=(\S+)$", (FOLDER / "neuron.txt").read_text(), re.MULTILINE))
    assert newest
    assert newest.items() <= _pins(Path("requirements.txt")).items()


@pytest.mark.parametrize("numpy", ["1.26.4", "2.4.6"])
def test_on_the_base_for_trn1_nothing_has_to_be_installed(tmp_path: Path, numpy: str) -> None:
    """The base's own packages satisfy `neuron.txt`, whichever numpy its last step has left there."""
    base = _pins(NEURON_BASE) | {"numpy": numpy}
    constraints = tmp_path / "base.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in base.items()))
    on_trn1 = ("--python-version", "3.12", "--python-platform", "x86_64-unknown-linux-gnu", "--only-binary", ":all:")
    resolve = [UV, "pip", "compile", "--quiet", "--no-config", "--no-header", *on_trn1, "--constraint", constraints]
    done = subprocess.run([*resolve, FOLDER / "neuron.txt"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    resolved = dict(PIN.findall(done.stdout))
    assert {"transformers", "h5py", "tensorboard", "boto3"} <= set(resolved)
    assert resolved.items() <= base.items()


def test_the_base_for_trn1_holds_nothing_that_only_staging_imports() -> None:
    """So staging has an image of its own; a base that holds them may change that."""
    assert not {"awscrt", "zstandard"} & set(_pins(NEURON_BASE))


def test_the_trainer_on_xla_is_tested_with_the_transformers_of_the_base_for_trn1() -> None:
    assert _pins(Path("requirements/tools/xla.txt"))["transformers"] == _pins(NEURON_BASE)["transformers"]
