"""What there are JSON Schemas of, apart from the schemas: `--help` waits for none."""

from __future__ import annotations

from enum import StrEnum


class SchemaOf(StrEnum):
    """What a schema describes."""

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
