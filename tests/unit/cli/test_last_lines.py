"""The program's lines are told apart from torchrun's, and no line is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainflow.record.last_lines import Part, last_own_line, parts

LAUNCHER = """  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/run.py", line 918, in main
    run(args)"""
OWN = """  File "/work/train.py", line 12, in <module>
    loss = model(batch)
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1739, in _call_impl
    return forward_call(*args, **kwargs)
ValueError: shape [8, 128] does not fit"""
REPORT = """E1121 10:00 17 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"""
HEAD = "Traceback (most recent call last):"


def test_torchruns_frames_and_its_report_are_folded_and_the_programs_are_not() -> None:
    assert parts("\n".join((HEAD, LAUNCHER, OWN, REPORT))) == [
        Part(HEAD),
        Part(LAUNCHER, "2 frames of torchrun"),
        Part(OWN),
        Part(REPORT, "report of torchrun"),
    ]


def test_torchruns_prefix_of_a_rank_hides_nothing() -> None:
    prefixed = ["\n".join(f"[0]:{line}" for line in text.split("\n")) for text in (HEAD, LAUNCHER, OWN)]
    assert [part.folded for part in parts("\n".join(prefixed))] == ["", "2 frames of torchrun", ""]


def test_the_last_own_line_is_the_error() -> None:
    assert last_own_line("\n".join((HEAD, LAUNCHER, OWN, "", REPORT))) == "ValueError: shape [8, 128] does not fit"
    assert last_own_line("Killed\n") == "Killed"
    assert last_own_line(REPORT) == REPORT.split("\n")[-1]
    assert last_own_line("") == ""


@given(st.lists(st.sampled_from([HEAD, LAUNCHER, OWN, REPORT, "", "    x", "a line"]) | st.text()))
def test_no_line_is_lost(texts: list[str]) -> None:
    text = "\n".join(texts)
    assert "\n".join(part.text for part in parts(text)) == text
