"""Deployments by name: the configuration file, the parameter, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import typer
from moto import mock_aws

from tests.wording import wording
from trainflow.cli.operate.export import Trackers, trackers
from trainflow.client.place import PlaceRefused, PlaceUnavailable
from trainflow.client.place_names import NamedPlace, PlaceNames, read_names
from trainflow.client.places import open_deployment
from trainflow.client.refusals import sentence_of, told
from trainflow.deployment.address import DeploymentAddress, parameter_name

ARN = "arn:aws:states:eu-north-1:123456789012:stateMachine:mine-training"


def address(deployment: str) -> DeploymentAddress:
    return DeploymentAddress(
        deployment=deployment,
        state_machine_arn=ARN,
        artifact_bucket="artifacts",
        data_bucket="data",
        cluster="cluster",
        namespace="training",
    )


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "eu-north-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "XDG_CONFIG_HOME": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_DEFAULT_REGION", "AWS_PROFILE", "TRAINFLOW_PLACE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        yield


def deploy(*deployments: str) -> None:
    ssm = boto3.client("ssm", region_name="eu-north-1")
    for name in deployments:
        ssm.put_parameter(Name=parameter_name(name), Value=address(name).model_dump_json(), Type="String")


@pytest.mark.usefixtures("aws")
def test_the_only_deployment_of_the_region_needs_no_name() -> None:
    deploy("mine")
    assert open_deployment(None).name == "mine"
    assert open_deployment(None).hint_words == ("--place", "mine")


@pytest.mark.usefixtures("aws")
def test_a_place_is_named_in_commands_by_its_own_name_which_has_its_region_and_profile() -> None:
    deploy("mine")
    place = NamedPlace(name="north", deployment="mine", region="eu-north-1")
    assert open_deployment(place).hint_words == ("--place", "north")


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("deployed", "named", "sentence"),
    [
        ((), None, "The account has no deployment in eu-north-1; name one with --place, or use --local for the twin."),
        (("a", "b"), None, "The account has 2 deployments (a, b) in eu-north-1; name one with --place, or use"),
        (("a",), "c", "There is no deployment 'c' in eu-north-1: the parameter /trainflow/c/address is missing."),
    ],
)
def test_a_deployment_that_is_not_there_is_one_sentence(
    deployed: tuple[str, ...], named: str | None, sentence: str
) -> None:
    deploy(*deployed)
    with pytest.raises(PlaceUnavailable) as refused:
        open_deployment(PlaceNames().named(named))
    assert str(refused.value).startswith(sentence)


@pytest.mark.usefixtures("aws")
def test_a_parameter_of_another_shape_is_one_sentence() -> None:
    boto3.client("ssm", region_name="eu-north-1").put_parameter(Name=parameter_name("mine"), Value="{}", Type="String")
    with pytest.raises(PlaceUnavailable, match=r"/trainflow/mine/address .*not an address"):
        open_deployment(NamedPlace(name="mine", deployment="mine"))


@pytest.mark.usefixtures("aws")
def test_without_a_region_the_sentence_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(PlaceUnavailable, match="No AWS Region is set: set AWS_REGION"):
        NamedPlace(name="mine", deployment="mine").session()
    with pytest.raises(PlaceUnavailable, match=r"places\.mine\.profile: .*'nobody'"):
        NamedPlace(name="mine", deployment="mine", profile="nobody").session()


def test_names_come_from_the_file_the_environment_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINFLOW_PLACE", raising=False)
    file = tmp_path / "config.toml"
    file.write_text('default = "big"\n[places.big]\ndeployment = "prod"\nregion = "us-east-1"\n[places.small]\n')
    names = read_names(file)
    assert names.named(None) == NamedPlace(name="big", deployment="prod", region="us-east-1")
    assert names.named("small") == NamedPlace(name="small", deployment="small")
    assert names.named("other") == NamedPlace(name="other", deployment="other")
    monkeypatch.setenv("TRAINFLOW_PLACE", "small")
    assert names.named(None) == NamedPlace(name="small", deployment="small")
    assert names.named("big") == NamedPlace(name="big", deployment="prod", region="us-east-1")


def test_the_trackers_of_a_place_are_used_where_the_command_names_none(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[places.mine]\nmlflow = 'https://mlflow.example.org'\nexperiment = 'bert'\n")
    mine = read_names(file).named("mine")

    assert trackers(Trackers(), mine) == Trackers(mlflow="https://mlflow.example.org", experiment="bert")
    assert trackers(Trackers(experiment="other"), mine).experiment == "other"
    assert trackers(Trackers(wandb="research"), mine) == Trackers(wandb="research", experiment="bert")
    for place in (None, NamedPlace(name="bare", deployment="bare")):
        with pytest.raises(typer.BadParameter, match="--mlflow URI, --wandb PROJECT"):
            trackers(Trackers(), place)


def test_without_a_file_there_are_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINFLOW_PLACE", raising=False)
    assert read_names(tmp_path / "config.toml").named(None) is None


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("default = ", "is not TOML"),
        ("default = 3", "`default` the name of a place"),
        ("places = 3", "`places` must be a table"),
        ("[places]\nmine = 3", "places.mine must be a table of texts"),
        ("[places.mine]\nregion = 3", "places.mine must be a table of texts"),
        (
            "[places.mine]\nregoin = 'x'",
            "places.mine.regoin is not a field; there are deployment, experiment, mlflow, profile, region",
        ),
        ("\udcff", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(PlaceUnavailable) as refused:
        read_names(file)
    assert str(file) in str(refused.value)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("AccessDeniedException", "These credentials may not call states:ListExecutions: User x is not\n authorized."),
        ("ExpiredTokenException", "AWS does not accept these credentials (ExpiredTokenException); log in again."),
        ("InternalServerError", "ListExecutions answered InternalServerError: User x is not\n authorized."),
    ],
)
def test_what_aws_refuses_is_one_sentence_with_the_permission(code: str, sentence: str) -> None:
    from botocore.exceptions import ClientError

    refusal = ClientError({"Error": {"Code": code, "Message": "User x is not\n authorized."}}, "ListExecutions")

    @told
    def call() -> None:
        raise refusal

    with pytest.raises(PlaceRefused) as raised:
        call()
    assert str(raised.value) == sentence.replace("\n ", " ") == sentence_of(refusal)


DECRYPT = "User: x is not authorized to perform: kms:Decrypt on resource: arn:aws:kms:r:1:key/k because no policy"
"""The beginning of what services say of a key."""

OF_OBJECTS = ", or kms:Decrypt on the object's key, or s3:ListBucket if there is no such object"
"""What else may be missing where S3 names no action."""


@pytest.mark.parametrize(
    ("operation", "code", "message", "missing"),
    [
        ("GetExecutionHistory", "KmsAccessDeniedException", DECRYPT, "kms:Decrypt"),
        (
            "DescribeExecution",
            "KmsAccessDeniedException",
            "Access to the key is denied.",
            "kms:Decrypt on the key behind states:DescribeExecution",
        ),
        ("GetObject", "AccessDenied", DECRYPT, "kms:Decrypt"),
        ("PutObject", "AccessDenied", DECRYPT.replace("Decrypt", "GenerateDataKey"), "kms:GenerateDataKey"),
        ("GetObject", "AccessDenied", "User: x is not authorized to perform: s3:GetObject on", "s3:GetObject"),
        ("GetObject", "AccessDenied", "User: x is not authorized to perform: s3:ListBucket on", "s3:ListBucket"),
        ("GetObject", "AccessDenied", "Access Denied", f"s3:GetObject{OF_OBJECTS}"),
        ("HeadObject", "403", "Forbidden", f"s3:GetObject{OF_OBJECTS}"),
        ("ListObjectsV2", "AccessDenied", "Access Denied", "s3:ListBucket"),
        (
            "GetItem",
            "AccessDeniedException",
            "KMS key access denied error: The ciphertext refers to a customer master key that does not exist",
            "kms:Decrypt on the key behind GetItem",
        ),
    ],
)
def test_a_key_that_may_not_be_used_is_the_permission_that_is_named(
    operation: str, code: str, message: str, missing: str
) -> None:
    from botocore.exceptions import ClientError

    refusal = ClientError({"Error": {"Code": code, "Message": message}}, operation)
    assert sentence_of(refusal) == f"These credentials may not call {missing}: {message.removesuffix('.')}."


def test_a_function_whose_own_role_may_not_use_its_key_is_no_missing_permission_of_the_caller() -> None:
    from botocore.exceptions import ClientError

    said = {"Code": "KMSAccessDeniedException", "Message": "Lambda was unable to decrypt the environment variables."}
    assert sentence_of(ClientError({"Error": said}, "Invoke")) == (
        wording(
            "places.a_function_whose_own_role_may_not_use_its_key_is_no_missing_permission_of_the_caller",
            "environment",
            "variables",
        )
    )
