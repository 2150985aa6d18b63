"""Buckets that are not of this deployment, and what runs may do with them."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from trainflow.configuration.section import Section

BUCKET = r"^[a-z0-9][-.a-z0-9]{1,61}[a-z0-9]$"
KMS_KEY_ARN = r"^arn:aws[-a-z]*:kms:[-a-z0-9]+:\d{12}:key/[-0-9a-z]+$"

IN_WORDS = {
    BUCKET: "must be the name of a bucket, without s3:// and without a path",
    KMS_KEY_ARN: "must be the ARN of a KMS key (arn:aws:kms:…:key/…); an alias is none",
}


class BucketGrant(Section):
    """A bucket of yours or of somebody else's, whose own policy has to agree if it is in another account."""

    bucket: Annotated[str, Field(pattern=BUCKET)]
    """Its name."""
    prefix: str = ""
    """Only what is below it: `models/`. Empty: the whole bucket."""
    read: bool = True
    """Runs may read objects and list them, and Preflight looks whether a data set is there."""
    write: bool = False
    """Runs may add objects. Nothing can be deleted."""
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
