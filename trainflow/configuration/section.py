"""What every section of the configuration is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Fields with defaults and docstrings; an unknown one is a mistake in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
