"""Images: built by AWS from the trainer's folder alone, never overwritten, and made to run as the pods run them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import cx_api

from lambdas.logic.jobs import Job
from lambdas.logic.manifests import indexed_job
from lambdas.models.run import JobRef, Stage
from stacks.images import ImagesStack, build_spec, kinds_of_images
from tests.infrastructure.alone import PINNED, Resources, configuration, make_app, of_type, settings, the_only

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


def test_whoever_deploys_needs_no_docker() -> None:
    assert not _assets()["dockerImages"]


def test_a_build_is_given_the_trainer_and_nothing_else() -> None:
    given = {path.relative_to(_source()) for path in _source().rglob("*") if path.is_file()}
    ours = {path.relative_to("trainer") for path in Path("trainer").rglob("*") if path.is_file()}
    assert given == {path for path in ours if "__pycache__" not in path.parts}


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_everything_that_a_recipe_copies_is_in_what_the_build_is_given(dockerfile: Path) -> None:
    for argument in _arguments(dockerfile, "COPY"):
        assert (_source() / argument.split()[0]).exists()


@pytest.mark.parametrize(
    ("torchneuron", "expected"),
    [(None, {"neuron": "neuron", "cpu": "cpu"}), (PINNED, {"neuron": "neuron", "cpu": "cpu", "torchneuron": "neuron"})],
)
def test_every_configured_base_has_a_build(torchneuron: str | None, expected: dict[str, str]) -> None:
    projects = of_type(_images(torchneuron=torchneuron), PROJECT).values()
    assert {project["Name"] for project in projects} == {f"trainflow-image-{kind}" for kind in expected}
    for project in projects:
        dockerfile = expected[project["Name"].removeprefix("trainflow-image-")]
        assert f"--file images/{dockerfile}.Dockerfile" in project["Source"]["BuildSpec"]
        assert f"BASE={PINNED}" in project["Source"]["BuildSpec"]
        assert (FOLDER / f"{dockerfile}.Dockerfile").exists()


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


def _spec(base: str) -> dict[str, Any]:
    (kind,) = (k for k in kinds_of_images(configuration(images={"cpu_base": base})) if k.name == "cpu")
    return build_spec(kind)


def test_a_build_tells_its_image_by_digest() -> None:
    spec = _spec("python:3.12")
    assert spec["env"]["exported-variables"] == ["IMAGE"]
    commands = spec["phases"]["build"]["commands"]
    pushed = next(number for number, command in enumerate(commands) if command.startswith("docker push"))
    asked = next(number for number, command in enumerate(commands) if "imageDigest" in command)
    assert pushed < asked
    assert 'export IMAGE="$REPOSITORY@$DIGEST"' in commands[asked:]


def test_the_commands_of_a_build_are_shell() -> None:
    phases = _spec("python:3.12; curl evil")["phases"].values()
    script = "\n".join(command for phase in phases for command in phase["commands"])
    assert "BASE='python:3.12; curl evil'" in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_a_base_in_somebody_s_private_registry_is_logged_in_to_and_may_be_pulled() -> None:
    base = "763104351884.dkr.ecr.us-east-1.amazonaws.com/torch-neuron@sha256:" + "1" * 64
    (kind,) = (k for k in kinds_of_images(configuration(images={"torchneuron_base": base})) if k.name == "torchneuron")
    log_in = build_spec(kind)["phases"]["pre_build"]["commands"][-1]
    assert "--region us-east-1" in log_in and "763104351884.dkr.ecr.us-east-1.amazonaws.com" in log_in
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


def test_what_the_cpu_image_installs_is_what_the_project_was_tested_with() -> None:
    pins, tested = _pins(FOLDER / "cpu.txt"), _pins(Path("requirements.txt"))
    assert pins.items() <= tested.items()
    wanted = re.findall(r"^([a-z0-9-]+)", Path("requirements/trainer.in").read_text(), re.MULTILINE)
    assert set(wanted) <= set(pins)


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
