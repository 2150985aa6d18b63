"""Base class of every section of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section: fields with defaults and docstrings. An unknown field is an error in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
