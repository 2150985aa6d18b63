"""Texts and intrinsic functions of a definition, parsed as JSON.

moto 5.2.5 cuts texts out of the definition's source, so that the characters `\\"`, `\\n` and `\\u00e4` stay as they are
written. It executes intrinsic functions of such texts with faults of its own, which `intrinsics` replaces.
"""

from __future__ import annotations

import json
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from local.aws import intrinsics
from local.aws.intrinsics import IntrinsicFailure
from local.aws.refusals import state_failure
from local.aws.replacements import replace

FAILURE = "States.IntrinsicFailure"
"""An ordinary error, which Retry and Catch are for (Step Functions developer guide, 'Error names')."""


def apply_all() -> None:
    """Apply every patch of this module."""
    _texts()
    _functions()
    _assigned_texts()


def _texts() -> None:
    from moto.stepfunctions.parser.asl.antlr.runtime.ASLLexer import ASLLexer
    from moto.stepfunctions.parser.asl.antlt4utils.antlr4utils import is_terminal
    from moto.stepfunctions.parser.asl.parse import preprocessor

    def inner_string(parser_rule_context: Any) -> str | None:
        return None if is_terminal(parser_rule_context, ASLLexer.NULL) else _parsed(parser_rule_context.getText())

    def from_string_literal(parser_rule_context: Any) -> str:
        return _parsed(parser_rule_context.getText())

    replace(preprocessor.Preprocessor, "_inner_string_of", staticmethod(inner_string))
    replace(preprocessor, "from_string_literal", from_string_literal)


def _parsed(text: str) -> str:
    return str(json.loads(text, strict=False)) if text.startswith('"') else text


def _functions() -> None:
    from moto.stepfunctions.parser.asl.component.common.string.string_expression import StringIntrinsicFunction
    from moto.stepfunctions.parser.asl.parse.preprocessor import Preprocessor

    def visit(_self: Any, context: Any) -> Any:
        text = _parsed(context.getText())
        # ErrorPath and CausePath compare the name without its first and last letter.
        function = SimpleNamespace(name=SimpleNamespace(name=_call(text).name.removeprefix("States.")[1:-1]))
        return StringIntrinsicFunction(intrinsic_function_derivation=text, function=function)

    def eval_body(self: Any, env: Any) -> None:
        def value_at(path: str) -> Any:
            _sampler(path).eval(env=env)
            return env.stack.pop()

        text = self.intrinsic_function_derivation
        try:
            env.stack.append(intrinsics.evaluate(_call(text), value_at))
        except IntrinsicFailure as failure:
            cause = f"The function '{text}' had the following error: {failure}"
            raise state_failure(env, FAILURE, cause) from None

    replace(Preprocessor, "visitString_intrinsic_function", visit)
    replace(StringIntrinsicFunction, "_eval_body", eval_body)


_call = lru_cache(maxsize=1024)(intrinsics.parse)
"""The call that a text stands for; each poll evaluates the same ones."""


@lru_cache(maxsize=1024)
def _sampler(path: str) -> Any:
    """moto's reader of a path."""
    from moto.stepfunctions.parser.asl.component.common.query_language import QueryLanguageMode
    from moto.stepfunctions.parser.asl.component.common.string.string_expression import (
        StringContextPath,
        StringJsonPath,
        StringVariableSample,
    )

    if path.startswith("$$"):
        return StringContextPath(path)
    if path[1:2] in ("", ".", "["):
        return StringJsonPath(path)
    return StringVariableSample(query_language_mode=QueryLanguageMode.JSONPath, expression=path)


def _assigned_texts() -> None:
    """Write assigned texts as JSON in the event of a state's exit; moto puts quotation marks around them."""
    from moto.stepfunctions.parser.asl.eval.variable_store import VariableStore
    from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

    def get_assigned_variables(self: Any) -> dict[str, str]:
        return {name: to_json_str(self.get(name), separators=(",", ":")) for name in self._declaration_tracing}

    replace(VariableStore, "get_assigned_variables", get_assigned_variables)
