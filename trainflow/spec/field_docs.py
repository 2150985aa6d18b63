"""Descriptions of a model's fields from the docstrings under them, read when a schema is asked for.

pydantic's own `use_attribute_docstrings` reads the source while each class is made: a third of the time that the run
spec's models took to import, in every command and at every cold start of a function.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic_core import CoreSchema


class DescribedFields(BaseModel):
    """Base of models whose JSON Schema has the fields' docstrings as descriptions."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """See pydantic, "Customizing JSON Schema"."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docs(cls).items():
            properties[name].setdefault("description", text)
        return schema


@functools.cache
def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Docstring by field, of the fields that a class itself declares and that have one."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef), "a class's source is its definition"  # noqa: S101
    return {
        field.target.id: inspect.cleandoc(doc.value.value)
        for field, doc in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }
