"""The names of errors about keys, compared with the services' models."""

from __future__ import annotations

from dataclasses import astuple

import botocore.session
import pytest

from local.aws.access.key_errors import BY_SERVICE, OF_KMS, QUERY_CODES, errors_of

MODELS = {"secretsmanager": "secretsmanager", "sns": "sns", "sqs": "sqs", "states": "stepfunctions"}
"""Names of the models by the services' names; the models of S3 and DynamoDB hold no errors about keys."""


def codes_of(model: str) -> set[str]:
    """Codes of all errors in a service's model."""
    shapes = botocore.session.Session().get_service_model(model).error_shapes
    return {shape.metadata.get("error", {}).get("code", shape.name) for shape in shapes}


@pytest.mark.parametrize("service", MODELS)
def test_errors_about_keys_are_in_the_services_model(service: str) -> None:
    assert {*astuple(BY_SERVICE[service])} - {"AccessDenied"} <= codes_of(MODELS[service])


def test_every_service_is_compared_that_names_such_errors() -> None:
    assert BY_SERVICE.keys() - MODELS.keys() == {"dynamodb", "s3"}
    assert {*astuple(OF_KMS)} - {"AccessDenied"} <= codes_of("kms")
    assert QUERY_CODES.keys() == {*astuple(BY_SERVICE["sqs"])}


@pytest.mark.parametrize(
    ("service", "missing", "disabled", "pending"),
    [
        ("s3", "KMS.NotFoundException", "KMS.DisabledException", "KMS.KMSInvalidStateException"),
        ("sns", "KMSNotFound", "KMSDisabled", "KMSInvalidState"),
        ("states", *["KmsInvalidStateException"] * 3),
        ("", "NotFoundException", "DisabledException", "KMSInvalidStateException"),
    ],
)
def test_the_state_of_a_key_decides(service: str, missing: str, disabled: str, pending: str) -> None:
    errors = errors_of((f"{service}.us-west-2.amazonaws.com",) if service else ())
    found = [errors.of_state(state) for state in (None, "Disabled", "PendingDeletion")]
    assert found == [missing, disabled, pending]
