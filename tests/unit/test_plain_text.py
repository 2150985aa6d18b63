"""Text of programs loses what would command a terminal, at every edge."""

import io
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment
from markupsafe import Markup

from trainflow.cli.operate.shown import details_text, table
from trainflow.cli.terminal import Console
from trainflow.observed.run_state import RunState
from trainflow.protocol.plain_text import plain_line, plain_text
from trainflow.report.plain_markup import plain_value
from trainflow.workflow.run_status import RunStatus

HOSTILE = {
    "title": "a\x1b]0;title\x07b",
    "title ended by ST": "a\x1b]2;title\x1b\\b",
    "clipboard": "a\x1b]52;c;cm0gLXJmIH4=\x07b",
    "link": "a\x1b]8;;http://x\x07b",
    "cleared screen": "a\x1b[2J\x1b[Hb",
    "colour": "\x1b[31ma\x1b[0mb",
    "DCS": "a\x1bP1$r0m\x1b\\b",
    "APC": "a\x1b_Gf=32\x1b\\b",
    "C1 CSI": "a\x9b2Jb",
    "C1 OSC": "a\x9d0;title\x9cb",
    "reset": "a\x1bcb",
    "bell": "a\x07b",
    "backspaces": "a\x08b",
    "direction": "a\u202eb",
    "isolate": "a\u2066b\u2069",
    "unfinished": "ab\x1b[",
    "written over": "sudo rm\rab",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_sequence_is_left_out_and_the_words_stay(text: str) -> None:
    assert plain_text(text) == "ab"


def test_lines_tabs_and_other_scripts_stay() -> None:
    assert plain_text("loss\t0.5\r\n损失 é 🏖\n") == "loss\t0.5\n损失 é 🏖\n"
    assert plain_line("key\nWhat to do: pay\t") == "key What to do: pay"


@given(st.text(alphabet=st.sampled_from("ab\x1b[]0;mP\\\x07\x9b\x9d\x9c\r\n\u202e\x08 ")))
def test_no_control_is_left_in_any_text(text: str) -> None:
    assert all(each.isprintable() or each in "\n\t" for each in plain_text(text))
    assert plain_text(plain_text(text)) == plain_text(text)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_edge_lets_a_sequence_through(text: str) -> None:
    printed = io.StringIO()
    Console(file=printed, force_terminal=True, color_system=None).print(text)
    now = datetime(2026, 11, 22, tzinfo=UTC)
    run = RunState(run_id="r", status=RunStatus.RUNNING, observed_at=now, warnings=(text,))
    edges = [printed.getvalue(), details_text(run, now), details_text(replace(run, trouble=text), now)]
    edges += [
        table((text,), [(text,)]),
        Environment(autoescape=True, finalize=plain_value).from_string("{{ x }}").render(x=text),
    ]

    for shown in edges:
        assert all(each.isprintable() or each in "\n\t" for each in shown)


def test_markup_of_a_template_stays_markup() -> None:
    page = (
        Environment(autoescape=True, finalize=plain_value)
        .from_string("{{ a }}{{ b }}")
        .render(a=Markup("<b>"), b="<\x1bc")
    )
    assert page == "<b>&lt;"
