"""The twin's contract: refusals are tested, gaps name the fault that they hide, and the page is what the data gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubetwin.resources import load_registry

from benchmarks.rehearsal import Assumption, missing_tests
from tests.infrastructure.generated_pages import Section, pages, sections

SECTIONS = {section.title: section for section in sections()}


@pytest.mark.parametrize(("path", "text"), list(pages()), ids=lambda value: getattr(value, "name", ""))
def test_a_page_is_what_its_data_gives(path: Path, text: str) -> None:
    assert path.read_text(encoding="utf-8") == text, "run `make schema`"


def test_the_contract_has_its_sections() -> None:
    assert list(SECTIONS) == [
        "Step Functions",
        "Lambda, queues and other services",
        "Kubernetes",
        "Permissions and signatures",
    ]


@pytest.mark.parametrize("section", SECTIONS.values(), ids=lambda section: section.title)
def test_every_refusal_names_tests_that_exist(section: Section) -> None:
    assert len({row.request for row in section.refuses}) == len(section.refuses), "no refusal stands twice"
    assert [row.request for row in section.refuses if not row.tests] == []
    every = [test.partition("::") for row in section.refuses for test in row.tests]
    assert [file for file, _, _ in every if "def test_" not in _text(file)] == []
    functions = tuple((file, name) for file, _, name in every if name)
    assert missing_tests([Assumption(statement=section.title, source=None, tests=functions)]) == []


@pytest.mark.parametrize("section", SECTIONS.values(), ids=lambda section: section.title)
def test_no_row_is_empty(section: Section) -> None:
    assert section.refuses
    assert section.lets_pass
    assert [row for row in section.refuses if not row.request] == []
    assert [row for row in section.lets_pass if not row.request or not row.hides] == []
    assert len({bool(row.answer) for row in section.refuses}) == 1, "all have an answer, or none"


@pytest.mark.parametrize("kind", ["LimitRange", "Endpoints", "EndpointSlice"])
def test_a_kind_that_the_cluster_lacks_is_in_the_table_of_what_passes(kind: str) -> None:
    assert kind not in {resource.kind for resource in load_registry()}
    assert [row for row in SECTIONS["Kubernetes"].lets_pass if f"`{kind}`" in row.request]


def _text(file: str) -> str:
    path = Path(file)
    return path.read_text(encoding="utf-8") if path.exists() else ""
