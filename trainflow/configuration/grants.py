"""Buckets and secrets outside of this deployment, with the access that runs have to them."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from trainflow.configuration.section import Section

BUCKET = r"^[a-z0-9][-.a-z0-9]{1,61}[a-z0-9]$"
KMS_KEY_ARN = r"^arn:aws[-a-z]*:kms:[-a-z0-9]+:\d{12}:key/[-0-9a-z]+$"

SECRET_ARN = r"^arn:aws[-a-z]*:secretsmanager:[-a-z0-9]+:\d{12}:secret:[-/_+=.@A-Za-z0-9]+-[A-Za-z0-9]{6}$"  # noqa: S105  (a pattern)

IN_WORDS = {
    BUCKET: "must be the name of a bucket, without s3:// and without a path",
    KMS_KEY_ARN: "must be the ARN of a KMS key (arn:aws:kms:…:key/…); an alias is none",
    SECRET_ARN: "must be the whole ARN of a secret, with the six characters at its end, as `aws secretsmanager "
    "describe-secret` prints it",
}


class BucketGrant(Section):
    """A bucket of this account or of another one, whose bucket policy then has to allow the access, too."""

    bucket: Annotated[str, Field(pattern=BUCKET)]
    """Name of the bucket."""
    prefix: str = ""
    """Prefix of the granted objects' keys, such as `models/`. Empty: the whole bucket."""
    read: bool = True
    """Whether runs may read and list objects, and Preflight may check that a data set exists."""
    write: bool = False
    """Whether runs may add objects. No object can be deleted."""
    kms_key_arn: Annotated[str, Field(pattern=KMS_KEY_ARN)] | None = None
    """Key that the bucket is encrypted with, if it is one of yours; its policy has to let this account's roles use
    it."""

    @field_validator("prefix")
    @classmethod
    def _a_folder(cls, prefix: str) -> str:
        if prefix and (not prefix.endswith("/") or prefix.startswith("/") or {"*", "?", "$"} & set(prefix)):
            raise ValueError(f"'{prefix}' must end with a slash and hold no wildcard, such as models/")
        return prefix

    @model_validator(mode="after")
    def _grants_something(self) -> Self:
        if not (self.read or self.write):
            raise ValueError("grants nothing; set read or write, or remove it")
        return self


class SecretGrant(Section):
    """A secret in AWS Secrets Manager of this account or of another one, whose resource policy then has to allow the
    access, too."""

    secret_arn: Annotated[str, Field(pattern=SECRET_ARN)]
    """Whole ARN of the secret, in this deployment's Region."""
    kms_key_arn: Annotated[str, Field(pattern=KMS_KEY_ARN)] | None = None
    """Key that the secret is encrypted with, if it is one of yours; its policy has to let this account's roles use
    it."""

    @property
    def region(self) -> str:
        """Region of the secret."""
        return self.secret_arn.split(":")[3]
