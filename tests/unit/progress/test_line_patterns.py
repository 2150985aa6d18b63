"""Users' regular expressions: bounded work for any of them, and the meaning that Python gives to ordinary ones."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.runs import spec_with
from trainflow.spec.line_pattern import LONGEST_PIECE, LinePattern, PatternRefused, pattern_problem

pytestmark = pytest.mark.lengthy

HOSTILE = [
    "a?" * 40 + "a" * 40 + r"(?P<step>\d)",
    r"STEP=(?P<step>\d+): " + "[x-z]*" * 6 + ";",
    r"(?P<step>\d+) " + r"\w*" * 6 + "!",
    r"step (?P<step>\d+) " + "[^a]*" * 8,
    r"((\w+\s*)+)(?P<step>\d+)",
    r"(a|ab)*(?P<step>\d+)",
    r"(a|a)*(?P<step>\d+)b",
    r"(?P<step>\d+).*.*.*.*x",
    r"\s*\s*\s*\s*\s*(?P<step>\d+)",
    r"(x+x+)+(?P<step>y)",
    r"^(([a-z])+.)+[A-Z]([a-z])+(?P<step>\d)$",
    r"(?P<step>([^x]*?(a|b|c)?){50})$",
    r"(?:(?:(?:a?){10}){10}){10}(?P<step>\d)",
    r"(.{1,30}){1,30}(?P<step>\d+)!",
    r"((((.*)*)*)*)*(?P<step>\d)!",
    r"(?P<step>\d)" + ".*" * 400 + "x" * 100,
    r"(?P<step>\w{1000})",
    r"(?P<step>\d{1,99999999999999999999})",
    r"(?P<step>\d+)(?=(.*)*x)",
    r"(?P<step>\d+)(.*)*(?P=step)!",
    r"(?i:(?P<step>[ſk]*[sK]*)+)!",
    "(" * 450 + r"(?P<step>\d)" + ")" * 450,
    r"(?:" + "|".join("a" * n for n in range(1, 40)) + r")*(?P<step>\d)",
    r"(?:" + "".join(f"{chr(97 + n % 26)}|" for n in range(450)) + r"z)*(?P<step>\d)",
]
LETTERS = ["a", "0", "x", " ", "1 b", "a0", "xy", "a ", "é", "step 1 b"]
CPU_SECONDS = 60
"""A thousand times what any of these programs needs; an endless search is ended by it."""


def run_within(program: str, *arguments: str) -> str:
    """What a Python program prints. Its CPU time is limited, because a search cannot be interrupted."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))  # noqa: E731
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=limit).stdout


SEARCH = """
import json, sys
sys.path.insert(0, ".")
from trainflow.spec.line_pattern import LinePattern, PatternRefused
for pattern in json.loads(sys.argv[1]):
    try:
        searched = LinePattern(pattern)
    except PatternRefused as refused:
        print("refused", refused)
        continue
    for length in json.loads(sys.argv[2]):
        for letters in json.loads(sys.argv[3]):
            searched.search((letters * length)[:length])
    print("searched")
"""


def search_in_a_process(patterns: list[str], lengths: list[int], letters: list[str]) -> str:
    return run_within(SEARCH, json.dumps(patterns), json.dumps(lengths), json.dumps(letters))


@pytest.mark.parametrize(
    ("lengths", "letters"), [([LONGEST_PIECE], LETTERS), ([1_000_000], ["a", "x"])], ids=["piece", "million"]
)
def test_a_hostile_pattern_is_refused_or_searched_in_work_that_the_length_of_a_line_bounds(
    lengths: list[int], letters: list[str]
) -> None:
    """All of them together, within the limit for one."""
    said = search_in_a_process(HOSTILE, lengths, letters).splitlines()
    assert len(said) == len(HOSTILE)
    assert all(line.startswith(("refused ", "searched")) for line in said), said


def test_a_spec_with_a_hostile_pattern_is_judged_in_bounded_work() -> None:
    program = """
import json, sys
sys.path.insert(0, ".")
from trainflow.errors import InvalidRunSpec
from trainflow.spec.run_spec import spec_from_document
for document in json.loads(sys.argv[1]):
    try:
        spec_from_document(document)
    except InvalidRunSpec as error:
        assert str(error).startswith("progress.pattern: "), error
    print("judged")
"""
    documents = [{**spec_with(progress="auto"), "progress": {"pattern": pattern}} for pattern in HOSTILE]
    assert run_within(program, json.dumps(documents)).split() == ["judged"] * len(HOSTILE)


CLASSES = [r"\d", r"\w", r"\s", r"\S", r"\D", r"\W", ".", "[a-c]", "[^a]", r"[^\s]", r"[-+.\w]", r"[^\W\d]", "[]x]"]
atoms = st.sampled_from([*"ab07 =:,-é", r"\.", r"\[", r"\]", r"\x41", r"\t", "step", "loss", *CLASSES])
repeats = st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{1,3}", "{,2}", "{2,}", "*?", "+?", "??", "{1,3}?"])
pieces = st.builds(str.__add__, atoms, repeats)
choices = st.lists(pieces, min_size=1, max_size=3).map(lambda some: f"(?:{'|'.join(some)})")
bodies = st.lists(pieces | choices, min_size=1, max_size=4).map("".join)


@st.composite
def ordinary_patterns(draw: st.DrawFn) -> str:
    """Patterns as people write them: texts, classes, repeats, choices and named groups in a row."""
    names = draw(st.lists(st.sampled_from(["loss", "learning_rate", "x_1"]), unique=True, max_size=2))
    parts = [draw(bodies)]
    for name in ["step", *names]:
        parts += [f"(?P<{name}>{draw(bodies)}){draw(st.sampled_from(['', '', '?']))}", draw(bodies)]
    begin, end = draw(st.sampled_from(["", "", "^", r"\A", r"\b", "(?s)"])), draw(st.sampled_from(["", "", "$", r"\Z"]))
    return begin + "".join(parts) + end


def groups_by_python(pattern: str, line: str) -> dict[str, str] | None:
    found = re.compile(pattern, re.ASCII).search(line)
    return None if found is None else {name: value for name, value in found.groupdict().items() if value is not None}


lines = st.text(st.sampled_from("ab07 =:,-.[]xcAé\t\v\u00a0│\udc80steplo"), max_size=40)


@given(ordinary_patterns(), st.lists(lines, min_size=1, max_size=5))
def test_ordinary_patterns_find_what_they_find_in_python(pattern: str, some: list[str]) -> None:
    searched = LinePattern(pattern)
    for line in some:
        found = searched.search(line)
        expected = groups_by_python(pattern, line.encode("utf-8", "replace").decode())
        assert found == expected


@given(st.data(), ordinary_patterns())
def test_patterns_find_what_they_find_in_python_in_lines_that_match(data: st.DataObject, pattern: str) -> None:
    line = data.draw(st.from_regex(re.compile(pattern, re.ASCII)).filter(lambda text: "\n" not in text))
    assert LinePattern(pattern).search(line) == groups_by_python(pattern, line)


WRITTEN = re.compile(r"pattern: '([^'\n]*\(\?P<step>[^'\n]*)'")


def written_patterns() -> list[str]:
    """The patterns of the documentation, of the examples and of the specs."""
    files = [
        path
        for folder in ("docs", "examples", "runs")
        for path in sorted(Path(folder).rglob("*"))
        if path.suffix in (".md", ".yaml", ".yml")
    ]
    found = [pattern for path in files for pattern in WRITTEN.findall(path.read_text())]
    assert len(found) >= 2
    return found


@pytest.mark.parametrize("line", ["step=40 train_loss=2.31 lr=0.1", "07:12 step=40 train_loss=2.31", "step=x", "é"])
def test_every_pattern_that_we_show_is_accepted_and_means_the_same(line: str) -> None:
    for pattern in written_patterns():
        assert pattern_problem(pattern) is None
        assert LinePattern(pattern).search(line) == groups_by_python(pattern, line)


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        (r"(?P<step>\d+)(?=,)", "uses look-ahead or look-behind, (?=...) or (?<=...); write its text as a part"),
        (
            r"(?<!val )(?P<step>\d+)",
            "uses negative look-ahead or look-behind, (?!...) or (?<!...); write what the line",
        ),
        (r"(?P<step>\d+) (?P=step)", "uses a backreference to a group, (?P=name) or \\1; write the expression of the"),
        (r"(x)?(?P<step>\d+)(?(1)y|z)", "uses a condition on a group"),
        (r"(?P<step>\d++)", "uses a possessive repeat such as a*+; write a*"),
        (r"(?P<step>(?>\d+))", "uses an atomic group, (?>...); write (?:...)"),
        (r"(?P<step>\d)\B", r"uses \B; write what the line has at that place"),
        (r"(?P<step>\d{500,1000})", "is too large, because repeats with a number"),
    ],
)
def test_a_refused_pattern_is_told_its_construct_and_what_to_write_instead(pattern: str, sentence: str) -> None:
    assert str(pattern_problem(pattern)).startswith(sentence)


@given(st.text(st.sampled_from("()[]{}|*+?.^$\\PdwbsZA<>=!:,0129-aé\ud800 \n") | st.characters(), max_size=60))
def test_any_text_is_a_pattern_or_is_refused_with_one_sentence(text: str) -> None:
    for pattern in (text, text + r"(?P<step>\d+)"):
        problem = pattern_problem(pattern)
        if problem is None:
            LinePattern(pattern).search("step 1 é \udc80")
        else:
            with pytest.raises(PatternRefused):
                LinePattern(pattern)


def test_the_command_imports_the_engine_only_for_a_pattern() -> None:
    program = "import sys; sys.path.insert(0, '.'); import trainflow.spec.run_spec; print('re2' in sys.modules)"
    assert run_within(program).strip() == "False"
