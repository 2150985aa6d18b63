"""The line that a program prints of a step, found in its source, and the field `progress` that reads it.

A program prints several lines with a loss: of a step, of an epoch, of an evaluation. The one of the innermost loop that
is not an evaluation's is printed most often.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise

from trainflow.client.programs.printed_parts import Part, Value, parts_of_call
from trainflow.client.programs.reachable import Region
from trainflow.client.programs.source import Module, last_name
from trainflow.progress.reader import ProgressReader
from trainflow.protocol.metric_aliases import MEANING
from trainflow.protocol.speed_units import speed_name
from trainflow.spec.line_pattern import pattern_problem
from trainflow.workflow.log_line import LogLine

PRINTERS = re.compile(
    r"print|log|^(info|write|debug|set_description|set_description_str|set_postfix_str)$", re.IGNORECASE
)
"""Names of the functions that print or log a line."""

NAME_BEFORE = re.compile(r"(?:([A-Za-z]+)[\s/-]+)?([A-Za-z][\w.-]*?)(?:\(\))?[\s=:\[(#\"']*$")
"""The word in front of a value, and the word in front of that."""

OTHERS_LOSS = ("val", "valid", "validation", "eval", "evaluation", "test")
"""Words in front of a loss that is not the training's."""

SELDOM = re.compile(
    r"(^|_)(val|valid|validate|validation|eval|evaluate|evaluation|test|infer|predict|estimate)", re.IGNORECASE
)
"""Names of functions and variables of an evaluation."""

OTHER_STEPS = ("batch", "it", "itr", "iters", "update", "updates", "num_updates", "n_iter", "step_num")
OTHER_LOSSES = (
    "total_loss",
    "avg_loss",
    "mean_loss",
    "running_loss",
    "average_loss",
    "nll",
    "nll_loss",
    "ce",
    "ce_loss",
)
"""Names that mean a step or a loss only in a line without a better one."""

RATES = ("ms", "s", "sec", "seconds", "time", "per")
"""Words in front of a step that make it the unit of a rate, as in `ms/batch`."""

PLAIN_SPEEDS = ("throughput", "speed", "rate", "perf")
"""Names of a speed that say nothing of its unit."""

UNIT_BEHIND = re.compile(r"\s?([^\W\d][\w/.-]*)")

VALUE = r"[-+.\w]+"

SAMPLES = ((1200, "2.3125"), (1300, "2.25"), (1400, "2.1875"), (1500, "2.125"))
"""Steps and losses of the lines that are given to `auto`."""


TOTAL = "5000"
"""Constant in these lines."""


@dataclass(frozen=True)
class PrintedLine:
    """A call that prints a line with a loss."""

    parts: tuple[Part, ...]
    line: int
    depth: int
    """Loops around it, in its function."""
    is_seldom: bool
    """Whether it stands in an evaluation."""
    has_colours: bool = False
    """Whether codes of a terminal stand between its words, which no pattern can know."""


@dataclass(frozen=True)
class FoundProgress:
    """The field `progress` for a program's own lines."""

    pattern: str | None = None
    """None if `auto` reads the line, or if no line was found."""
    line: int = 0
    """Line of the source that prints it; 0 if none was found."""


def find_progress(found: Iterable[Region]) -> FoundProgress:
    """The best way to read the steps that a program prints itself.

    Args:
        found: The parts of the program that it reaches.
    """
    for each in _ranked(line for region in found for line in _lines(region)):
        if _is_read_without_help(each.parts):
            return FoundProgress(line=each.line)
        pattern = None if each.has_colours else line_pattern(each.parts)
        if pattern is not None and pattern_problem(pattern) is None:
            return FoundProgress(pattern, each.line)
    return FoundProgress()


def pattern_in(tree: ast.Module) -> str | None:
    """The pattern of the best line that a file prints with a step and a loss; None if the source shows none."""
    patterns = (line_pattern(each.parts) for each in _ranked(_lines(Region(Module(given=tree), tree))))
    return next((each for each in patterns if each is not None and pattern_problem(each) is None), None)


def _ranked(lines: Iterable[PrintedLine]) -> list[PrintedLine]:
    """Lines in the order of how often they are printed, as far as the source shows it."""

    def rank(each: PrintedLine) -> tuple[bool, bool, int]:
        names = [name for name, _ in _names(each.parts)]
        is_evaluation = each.is_seldom or any(name.endswith("_loss") and _is_others(name) for name in names)
        return is_evaluation, "step" not in names, -each.depth

    return sorted((each for each in lines if _has_loss(each.parts)), key=rank)


def _is_others(name: str) -> bool:
    return name.lower().removesuffix("_loss") in OTHERS_LOSS


def _has_loss(parts: Sequence[Part]) -> bool:
    return any(name == "loss" for name, _ in _names(parts))


def _lines(region: Region) -> Iterator[PrintedLine]:
    yield from _lines_below(region.node, _Context())


@dataclass(frozen=True)
class _Context:
    depth: int = 0
    is_seldom: bool = False
    texts: tuple[ast.AST, ...] = field(default=())
    """The function, or the module, whose variables may hold a text."""


def _lines_below(node: ast.AST, context: _Context) -> Iterator[PrintedLine]:
    if isinstance(node, ast.Module):
        context = replace(context, texts=(node,))
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        context = _Context(is_seldom=bool(SELDOM.search(node.name)), texts=(node,))
    elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
        context = replace(context, depth=context.depth + 1)
    elif isinstance(node, ast.If) and any(SELDOM.search(name) for name in _names_in(node.test)):
        context = replace(context, is_seldom=True)
    elif isinstance(node, ast.Call) and PRINTERS.search(last_name(node.func)) and not _is_tracker(node):
        parts = tuple(parts_of_call(node, context.texts[0] if context.texts else None))
        yield PrintedLine(parts, node.lineno, context.depth, context.is_seldom, "\\x1b[" in ast.dump(node))
    for child in ast.iter_child_nodes(node):
        yield from _lines_below(child, context)


def _is_tracker(call: ast.Call) -> bool:
    """Whether a call gives figures to a tracker, which prints none, as `wandb.log({…})` does."""
    return last_name(call.func).startswith("log") and bool(call.args) and isinstance(call.args[0], ast.Dict)


def _names_in(node: ast.AST) -> Iterator[str]:
    return (last_name(inner) for inner in ast.walk(node) if isinstance(inner, ast.Name | ast.Attribute))


def _is_read_without_help(parts: Sequence[Part]) -> bool:
    """Whether `progress: auto` finds the steps in lines like this one."""
    reader, logged_at = ProgressReader("auto"), datetime(2026, 1, 1, tzinfo=UTC)
    counted = _counted(parts)
    lines = [_sample(parts, counted, step, loss) for step, loss in SAMPLES]
    steps = [step for line in lines for step in reader.read(LogLine(logged_at=logged_at, text=line))]
    if counted is None:
        return False
    if _is_step(parts, counted):
        return {(step, float(loss)) for step, loss in SAMPLES[1:]} <= {(step.step, step.loss) for step in steps}
    numbers = [step.step for step in steps]
    return {float(loss) for _, loss in SAMPLES[1:]} <= {step.loss for step in steps} and numbers == sorted(set(numbers))


def _counted(parts: Sequence[Part]) -> int | None:
    """Position among the values of the one that rises from line to line: a step, a number of a total, or an epoch."""
    names = [name for name, _ in _names(parts)]
    if "step" in names:
        return names.index("step")
    numbers = [number for number, (name, total) in enumerate(zip(names, _totals(parts), strict=True)) if not name]
    behind = next((number for number in numbers if number + 1 < len(names) and _totals(parts)[number + 1]), None)
    return behind if behind is not None else names.index("epoch") if "epoch" in names else None


def _is_step(parts: Sequence[Part], counted: int) -> bool:
    """Whether the number that rises is a step of the whole training, and not of an epoch."""
    names = [name for name, _ in _names(parts)]
    return names[counted] == "step" and not ("epoch" in names and _counts_batches(parts))


def _totals(parts: Sequence[Part]) -> list[bool]:
    """Whether each value is the same in every line: constants, and totals as in `3/100` and `3 of 100`."""
    before = ""
    found: list[bool] = []
    for part in parts:
        if isinstance(part, str):
            before += part
        else:
            found.append(part.is_constant or (bool(found) and before.strip() in ("/", "of")))
            before = ""
    return found


def _sample(parts: Sequence[Part], counted: int | None, step: int, loss: str) -> str:
    """The line that a program prints at a step."""
    names = [name for name, _ in _names(parts)]
    totals = _totals(parts)
    texts = []
    number = -1
    for before, part in zip((None, *parts), parts, strict=False):
        if isinstance(part, str):
            texts.append(part)
            continue
        number += 1
        if number == counted:
            texts.append(f"{step:,}" if part.has_commas else str(step))
        elif isinstance(before, Value):
            continue  # a text that is only added in some lines
        else:
            texts.append(loss if names[number] == "loss" else TOTAL if totals[number] else "3")
    return "".join(texts).strip()


def line_pattern(parts: Sequence[Part]) -> str | None:
    """A regular expression for a line; None without a step and a loss in it.

    Args:
        parts: Texts and values of the line in their order.
    """
    names = list(_names(parts))
    groups = {name for name, _ in names if name}
    if (
        "step" not in groups
        and "epoch" in groups
        and all(name or total for (name, _), total in zip(names, _totals(parts), strict=True))
    ):
        names = [("step" if name == "epoch" else name, begin) for name, begin in names]
        groups = {name for name, _ in names if name}
    if not {"step", "loss"} <= groups:
        return None
    if "epoch" in groups and _counts_batches(parts):
        return None  # the number of a batch in its epoch, which falls again
    known = [index for index, (name, _) in enumerate(names) if name]
    pattern, text, index = "", "", -1
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        index += 1
        name, begin = names[index]
        if known[0] <= index <= known[-1]:
            before = text[begin:] if index == known[0] else text
            pattern += _literal(before.rstrip() if part.padded else before) + (r"\s*" if part.padded else "")
            value = (r"[\d,]+" if part.has_commas else r"\d+") if name == "step" else VALUE
            pattern += f"(?P<{name}>{value})" if name else value
        text = ""
    return pattern


def _names(parts: Sequence[Part]) -> list[tuple[str, int]]:
    """Name of each value, and where it begins in the text before the value. Unknown ones have an empty name."""
    words = list(_words_before(parts))
    values = [part for part in parts if isinstance(part, Value)]
    words = [("", "", 0) if value.is_constant else word for value, word in zip(values, words, strict=True)]
    names = [_group(word, before=before) for word, before, _ in words]
    for meaning, others in (("step", OTHER_STEPS), ("loss", OTHER_LOSSES)):
        if meaning not in names:
            lower = [word.lower() if before.lower() not in RATES else "" for word, before, _ in words]
            found = next((lower.index(other) for other in others if other in lower), None)
            names = [meaning if number == found else name for number, name in enumerate(names)]
    if "step" not in names and "epoch" not in names and _begins_with_bracket(parts):
        names = ["step", *names[1:]]
    names = _with_total_and_speeds(names, parts)
    return [
        (name, begin) if name and name not in names[:number] else ("", 0)
        for number, (name, (_, _, begin)) in enumerate(zip(names, words, strict=True))
    ]


def _with_total_and_speeds(names: Sequence[str], parts: Sequence[Part]) -> list[str]:
    """The names, completed for values without one: `total` after the step, and a speed by the unit after it."""
    totals, units = _totals(parts), _units_behind(parts)
    values = [part for part in parts if isinstance(part, Value)]
    found: list[str] = []
    for index, (name, unit) in enumerate(zip(names, units, strict=True)):
        is_total = totals[index] and not values[index].is_constant and found[-1:] == ["step"]
        found.append("total" if is_total else unit if unit and (not name or name in PLAIN_SPEEDS) else name)
    return found


def _units_behind(parts: Sequence[Part]) -> list[str]:
    """The name of the speed whose unit stands behind each value; empty for other values."""
    found = []
    for part, behind in pairwise((*parts, "")):
        if not isinstance(part, str):
            unit = UNIT_BEHIND.match(behind) if isinstance(behind, str) else None
            found.append((speed_name(unit[1]) if unit else None) or "")
    return found


def _counts_batches(parts: Sequence[Part]) -> bool:
    """Whether the step has one of the names that count batches."""
    words = [word.lower() for word, _, _ in _words_before(parts)]
    return "step" not in (_group(word, before="") for word in words) and bool(set(words) & set(OTHER_STEPS))


def _begins_with_bracket(parts: Sequence[Part]) -> bool:
    """Whether a line begins with a number in brackets, such as `[120] loss=2.3`."""
    text = parts[0] if parts and isinstance(parts[0], str) else ""
    behind = parts[2] if len(parts) > 2 else ""
    return text.strip() in ("[", "(") and isinstance(behind, str) and behind.lstrip()[:1] in ("]", ")")


def _words_before(parts: Sequence[Part]) -> Iterator[tuple[str, str, int]]:
    """The word in front of each value, the word in front of that, and where it begins."""
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        found = NAME_BEFORE.search(text)
        if found is None:
            yield "", "", 0
        else:
            yield found[2], found[1] or "", found.start(2)
        text = ""


def _group(word: str, *, before: str) -> str:
    """The name of a value as the name of a group."""
    if not word:
        return ""
    candidates = (f"{before}_{word}", word, *(part for part in _dotted_parts(word)))
    meaning = next((MEANING[each.lower()] for each in candidates if each.lower() in MEANING), word)
    if meaning == "loss" and before.lower() in OTHERS_LOSS:
        meaning = f"{before}_loss"
    name = re.sub(r"\W", "_", meaning)
    return name if name.isidentifier() and name.isascii() else ""


def _dotted_parts(word: str) -> list[str]:
    """`step` of `state.step`, and `loss` of `loss.item`, as f-strings with `=` print them."""
    parts = word.split(".")
    return [parts[-2] if parts[-1] in ("item", "mean", "val", "avg", "value") else parts[-1]] if len(parts) > 1 else []


def _literal(text: str) -> str:
    """Pattern for a text; a space matches any number of spaces."""
    return re.sub(r"\s+", r"\\s+", re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text))
