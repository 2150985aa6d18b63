"""Names of the JSON Schemas, in a module apart from the schemas, so that `--help` does not wait for them."""

from __future__ import annotations

from enum import StrEnum


class SchemaOf(StrEnum):
    """Documents with a schema."""

    RUN_SPEC = "run-spec"
    OVERRIDE = "override"
    CONFIGURATION = "configuration"
    RUN_RECORD = "run-record"
    RUN_ENDED = "run-ended"
    COMMAND_OUTPUT = "command-output"

    @property
    def file_name(self) -> str:
        """Its file in `config/`."""
        return f"{self.value}.schema.json"
