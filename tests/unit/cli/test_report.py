from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from recorded_runs import RecordedRun, recorded

from trainflow.client.files import write_report
from trainflow.observed.step import Step
from trainflow.protocol.plain_text import plain_text
from trainflow.record.published import latest_of_each_step
from trainflow.record.steps import kept_steps_of
from trainflow.report import render_report
from trainflow.report.charts import charts
from trainflow.report.published_figures import published_figure
from trainflow.report.scales import nice_ticks, smoothed, thinned, time_ticks
from trainflow.report.timeline import timeline
from trainflow.workflow.run_record import (
    Cost,
    Inputs,
    Job,
    NodePrice,
    Pod,
    Restart,
    RunError,
    RunRecord,
    SavedCheckpoint,
    StateCost,
)

EVIL = "</pre><script>alert(1)</script>\"' onload=x & `<b>`"
VOID = {"meta", "link", "br", "hr", "img", "input", "line", "path", "rect"}


class Page(HTMLParser):
    """A page's elements, its text, and whether its tags are balanced."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(record: RunRecord, steps: Sequence[Step] = (), **options: Any) -> Page:
    return Page(render_report(record, steps, **options))


def page_of_run(run: RecordedRun) -> Page:
    return page_of(run.record(), latest_of_each_step(run.lines))


@pytest.mark.parametrize("name", ["succeeded", "worker_failed", "rejected", "aborted"])
def test_the_report_is_one_well_formed_page_that_needs_nothing_else(name: str) -> None:
    page = page_of_run(recorded(name))

    assert (page.unbalanced, page.open) == ([], [])
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert not [attributes for _, attributes in page.elements if "src" in attributes]
    links = [link["href"] or "" for link in page.all("a")]
    assert not [link for link in links if "//" in link]
    assert "url(" not in "".join(page.text)


def test_only_the_reports_own_script_may_run() -> None:
    page = page_of_run(recorded("worker_failed"))

    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")

    assert policy is not None
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/=]{44}'$", policy)
    assert len(page.all("script")) == 1


def test_text_from_logs_specs_and_pods_is_text_not_markup() -> None:
    record = recorded("worker_failed").record()
    pods = [Pod(name=EVIL, node=EVIL, phase=EVIL, message=EVIL)]
    evil = record.model_copy(
        update={
            "run_id": EVIL,
            "error": RunError(name=EVIL, message=EVIL, what_to_do=EVIL),
            "spec": {"name": EVIL, EVIL: EVIL},
            "jobs": {EVIL: Job(name=EVIL, phase=EVIL, pods=pods)},
            "diagnostics": [{"pod": EVIL, EVIL: EVIL, "last_lines": [EVIL]}],
        }
    )

    page = page_of(evil, logs=[f"{EVIL}.log"])

    assert len(page.all("script")) == 1
    assert page.all("b") == []
    assert (page.unbalanced, page.open) == ([], [])
    assert not [attributes for _, attributes in page.elements if "onload" in attributes]
    assert "".join(page.text).count("<script>alert(1)</script>") >= 5


@given(st.text(max_size=60))
def test_any_log_text_is_shown_as_it_is_but_for_controls_of_terminals(text: str) -> None:
    record = recorded("rejected").record().model_copy(update={"diagnostics": [{"pod": "p", "last_lines": [text]}]})

    html = render_report(record, [])

    shown = "".join(Page(html).text)
    assert plain_text(text) in shown


def test_a_failed_runs_report_says_what_happened_and_what_to_do() -> None:
    text = "".join(page_of_run(recorded("worker_failed")).text)

    assert "WorkerFailed" in text
    assert "ended with exit code 137" in text
    assert "Read the worker's last lines in the report" in text
    assert "<script>alert('from a log')</script>" in text


def test_a_succeeded_runs_report_has_its_key_figures() -> None:
    text = "".join(page_of_run(recorded("succeeded")).text)

    for figure in ("2 min 11 s", "19 s", "200", "9.221 → 6.326", "118.6", "miss"):
        assert figure in text
    assert "What happened" not in text


def test_other_nodes_than_the_specs_first_are_named() -> None:
    given_up = {"instance_type": "g5.12xlarge", "given_up": ["p5.48xlarge", EVIL]}
    page = page_of(recorded("succeeded").record().model_copy(update=given_up))
    assert "g5.12xlarge" in page.text
    assert f", because there was no capacity of p5.48xlarge, {EVIL}" in "".join(page.text)
    assert page.unbalanced == []
    assert "no capacity" not in "".join(page_of(recorded("succeeded").record()).text)


def test_gaps_and_duplicates_are_not_hidden() -> None:
    record = recorded("succeeded").record()
    assert record.metrics_published is not None
    faulty = record.metrics_published.model_copy(update={"gaps": 1, "duplicates": 3})

    text = "".join(page_of(record.model_copy(update={"metrics_published": faulty})).text)

    assert "1 gap, 3 duplicates" in text
    rotated = record.metrics_published.model_copy(update={"log_rotations": 2})
    text = "".join(page_of(record.model_copy(update={"metrics_published": rotated})).text)
    assert "lines lost in 2 log rotations" in text
    unread = record.metrics_published.model_copy(update={"unparsable_lines": 1})
    text = "".join(page_of(record.model_copy(update={"metrics_published": unread})).text)
    assert "1 line that could not be read" in text


def test_every_drawing_has_a_title_in_words() -> None:
    html = render_report(recorded("succeeded").record(), recorded("succeeded").lines)

    drawings = re.findall(r"<svg [^>]*>\s*<title>([^<]+)</title>", html)

    assert len(drawings) == html.count("<svg ") > 10
    assert any(title.startswith("Loss from 9.221 at step 1 to 6.326 at step 200") for title in drawings)


def test_logs_that_were_written_are_linked_relative_to_the_report(tmp_path: Path) -> None:
    run = recorded("succeeded")
    (tmp_path / "logs").mkdir()
    name = "demo-3f2a9c1b4d5e-training-1-0-k7x2p"
    (tmp_path / "logs" / f"{name}.log").write_text("a line\n")

    path = write_report(run.record(), run.lines, tmp_path / "report.html")

    links = [link["href"] for link in Page(path.read_text()).all("a")]
    assert links == [f"logs/{name}.log", "run.json"]


def test_a_run_without_steps_says_so() -> None:
    assert "Rank 0 logged no step." in "".join(page_of_run(recorded("rejected")).text)


def test_a_curve_breaks_where_the_loss_is_no_number() -> None:
    steps = list(recorded("succeeded").lines[:8])
    steps[3] = replace(steps[3], loss=math.nan)

    loss = charts(steps)[0]

    assert loss.raw_path.count("M") == 2
    assert loss.note == "NaN or infinite at 1 logged step, first at step 4"
    assert len(json.loads(loss.points)) == 7
    assert "nan" not in loss.raw_path.lower()


def test_a_training_that_diverged_at_once_still_has_a_report() -> None:
    run = recorded("succeeded")
    steps = [replace(step, loss=math.nan) for step in run.lines]

    assert [chart.key for chart in charts(steps)] == ["throughput", "rate"]
    assert page_of(run.record(), steps).unbalanced == []


def test_a_single_step_is_drawn() -> None:
    assert charts(recorded("succeeded").lines[:1])[0].raw_path.startswith("M")


def test_a_long_training_is_thinned_but_keeps_its_extremes() -> None:
    points = [(float(step), math.sin(step)) for step in range(28_125)]
    points[12_345] = (12_345.0, 99.0)

    kept = thinned(points, 900)

    assert len(kept) <= 1000
    assert (12_345.0, 99.0) in kept
    assert kept == sorted(kept)


@given(st.floats(-5, 5), st.floats(-5, 5), st.integers(1, 80), st.integers(1, 12))
def test_the_smoothed_curve_neither_lags_behind_nor_bends_at_its_ends(
    slope: float, start: float, length: int, reach: int
) -> None:
    line = [start + slope * step for step in range(length)]

    assert smoothed(line, reach) == pytest.approx(line, abs=1e-6)


def test_the_ends_of_the_smoothed_curve_do_not_follow_the_noise() -> None:
    """A mean of a window that shrinks to the last value alone would end in the last value."""
    noisy = [100.0 - step + (4.0 if step % 2 else -4.0) for step in range(100)]

    smooth = smoothed(noisy, 10)

    assert max(abs(mean - (100.0 - step)) for step, mean in enumerate(smooth)) < 1.0


def test_the_smoothed_curve_does_not_leave_the_range_of_the_values() -> None:
    """A learning rate that falls to 0 faster at its end is not drawn below 0."""
    rates = [1.0] * 40 + [0.5, 0.1, 0.0]

    assert min(smoothed(rates, 10)) >= 0.0
    assert max(smoothed(rates, 10)) <= 1.0


def test_values_that_are_no_numbers_do_not_disturb_the_smoothed_curve() -> None:
    falling = [100.0 - step for step in range(50)]
    broken = [math.nan if step in (0, 7, 8, 49) else value for step, value in enumerate(falling)]

    smooth = smoothed(broken, 5)

    assert [math.isnan(value) for value in smooth] == [math.isnan(value) for value in broken]
    assert [value for value in smooth if value == value] == pytest.approx([v for v in broken if v == v])
    assert smoothed([], 3) == []
    assert all(map(math.isnan, smoothed([math.nan, math.nan], 3)))


@given(
    st.floats(-1e6, 1e6).filter(lambda value: abs(value) > 1e-6),
    st.floats(1e-5, 1e6),
    st.integers(min_value=3, max_value=9),
)
def test_ticks_are_evenly_spaced_and_cover_the_values(low: float, extent: float, at_most: int) -> None:
    ticks = nice_ticks(low, low + extent, at_most=at_most)

    slack = extent * 1e-6
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + extent - slack
    assert len(ticks) <= at_most + 2


@pytest.mark.parametrize("seconds", [0.3, 8, 131, 4000, 90_000, 400_000, 31_536_000])
def test_a_time_axis_has_few_round_ticks(seconds: float) -> None:
    ticks = time_ticks(seconds, at_most=8)

    assert 2 <= len(ticks) <= 8
    assert ticks[0] == 0
    assert ticks[-1] <= seconds * 1.001


def test_the_timeline_names_laps_and_leaves_out_what_took_no_time() -> None:
    drawn = timeline(recorded("succeeded").record())

    rows = {row.label: row for row in drawn.states}
    assert rows["EnsureCapacity"].note == "2 visits, 1 retry"
    assert rows["WatchTraining"].note == "22 laps"
    assert "NeedsPrecompile" in drawn.instants
    assert next(row.label for row in drawn.pods) == "stage-1-0-k7x2p"
    assert all(bar.left >= 0 and bar.left + bar.width <= 100.001 for row in drawn.states for bar in row.bars)


def test_of_a_large_gang_rank_0_and_the_failed_pods_are_drawn() -> None:
    record = recorded("worker_failed").record()
    moment = record.started_at
    pods = [
        Pod(name=f"p{index}", phase="Failed" if index == 99 else "Succeeded", started_at=moment, finished_at=moment)
        for index in range(128)
    ]
    job = Job(name="j", phase="Failed", pods=pods, rank0="p64")

    drawn = timeline(record.model_copy(update={"jobs": {"training": job}}))

    labels = [row.label for row in drawn.pods]
    assert len(labels) == 24
    assert drawn.hidden_pods == 104
    assert {"p64", "p99"} <= set(labels)


def test_the_figures_of_another_program_have_curves_and_no_units() -> None:
    run = recorded("succeeded")
    steps = [
        replace(step, loss=None, throughput=None, learning_rate=None, epoch=None, metrics={"reward": step.step / 10})
        for step in run.lines
    ]
    record = run.record(kept=kept_steps_of(steps))
    record.warnings.append("progress.pattern matches nothing")
    page = page_of(record, steps)
    text = " ".join(page.text)
    assert [(chart.title, chart.unit) for chart in charts(steps)] == [("reward", "")]
    assert record.training is not None
    assert record.training.last_metrics == {"reward": steps[-1].metrics["reward"]}
    assert (record.training.last_loss, record.training.sequences_per_second) == (None, None)
    assert "Sequences/s" not in text
    assert "progress.pattern matches nothing" in text
    assert page.unbalanced == []


def bert_large(**workload: Any) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(Path("runs/bert-large.yaml").read_text())
    spec["workload"]["arguments"] |= workload
    return spec


@pytest.mark.parametrize("name", ["bert-large", "bert-lamb-slurm-weak"])
def test_a_run_of_a_tutorials_recipe_is_compared_with_its_published_figure(name: str) -> None:
    spec = yaml.safe_load(Path(f"runs/{name}.yaml").read_text())
    record = recorded("succeeded").record().model_copy(update={"spec": spec})
    assert record.training is not None
    published = {"bert-large": ("6,450", "2%"), "bert-lamb-slurm-weak": ("57,408", "0%")}[name]
    text = "".join(page_of(record).text)
    assert "Beside published figures" in text
    assert all(figure in text for figure in (*published, "118.6"))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        bert_large(device="cpu"),
        bert_large(batch_size=8),
        bert_large(model="tiny"),
        {**bert_large(), "compute": {**bert_large()["compute"], "num_nodes": 4}},
        {**bert_large(), "compute": {**bert_large()["compute"], "instance_type": "trn1n.32xlarge"}},
        {**bert_large(), "workload": {"script": "train.py", "arguments": bert_large()["workload"]["arguments"]}},
        yaml.safe_load(Path("runs/bert-lamb.yaml").read_text()),
    ],
)
def test_another_recipe_has_no_published_figure(spec: dict[str, Any]) -> None:
    record = recorded("succeeded").record().model_copy(update={"spec": spec})
    assert published_figure(record) is None
    assert "Beside published figures" not in "".join(page_of(record).text)


def test_a_loss_has_the_unit_nats_in_trainflows_own_program_alone() -> None:
    run = recorded("succeeded")
    other = {**run.record().spec, "workload": {"script": "train.py"}}
    assert "nats" in "".join(page_of_run(run).text)
    assert "nats" not in "".join(page_of(run.record().model_copy(update={"spec": other}), run.lines).text)


def test_the_figures_of_step_reports_have_their_titles_and_units() -> None:
    steps = [replace(step, metrics={"tokens_per_second": 9.0, "reward": 1.0}) for step in recorded("succeeded").lines]
    titles = [(chart.title, chart.unit) for chart in charts(steps)]
    assert titles[3:] == [("Throughput", "tokens/s"), ("reward", "")]


def full_record() -> RunRecord:
    """A record with everything that a record may have."""
    run = recorded("worker_failed")
    start = run.record().started_at
    trace = 'Traceback (most recent call last):\n  File "/work/train.py", line 1, in f\n    g()\nValueError: odd'
    pod = Pod(name="p", phase="Failed", message=trace)
    facts: dict[str, Any] = {
        "jobs": {"training": Job(name="j", phase="Failed", pods=[pod])},
        "restarts": [
            Restart(
                stage="training", attempt=1, at=start + timedelta(seconds=20), error=EVIL, message=EVIL, last_step=40
            )
        ],
        "checkpoints": [
            SavedCheckpoint(step=30, saved_at=start + timedelta(seconds=10), size_bytes=3 * 1024**3),
            SavedCheckpoint(step=60, saved_at=start + timedelta(seconds=30), size_bytes=7, url=f"s3://b/{EVIL}"),
        ],
        "inputs": Inputs(
            image_digest="sha256:feed",
            git_commit="c" * 40,
            packages={"python": "3.12.4", "torch": EVIL},
            dataset_etag=EVIL,
            dataset_bytes=2048,
        ),
        "cost": Cost(
            usd=12.345,
            node_hours=0.5,
            region="us-west-2",
            prices=[
                NodePrice(instance_type="t", usd_per_hour=21.5, as_of="2026-07-20", source="https://prices.example")
            ],
            states=[StateCost(state="WatchTraining", instance_type="t", node_hours=0.5, usd=12.345)],
        ),
    }
    return run.record().model_copy(update=facts)


def test_restarts_checkpoints_cost_and_inputs_are_shown() -> None:
    run, record = recorded("worker_failed"), full_record()

    page = page_of(record, run.lines)

    text = "".join(page.text)
    assert page.unbalanced == []
    assert [tag for tag, _ in page.elements if tag == "b"] == []
    for fact in (
        "3.0 GiB",
        "20 s",
        "12.35 USD",
        "21.5 USD an hour, as of 2026-07-20",
        "estimate",
        "sha256:feed",
        f"python 3.12.4, torch {EVIL}",
        "2.0 KiB",
    ):
        assert fact in text, fact
    assert "s3://b/" in text
    (summary,) = [said for said in page.text if said == "ValueError: odd"]
    assert summary
    assert [
        mark.kind for mark in charts(run.lines, restarts=record.restarts, checkpoints=record.checkpoints)[0].marks
    ] == [
        "checkpoint",
        "checkpoint",
        "restart",
    ]


def test_states_that_cost_next_to_nothing_are_added_up() -> None:
    record = full_record()
    assert record.cost is not None
    (large,) = record.cost.states
    small = [replace(large, state=name, node_hours=0.001, usd=0.0215) for name in ("A", "B")]
    cost = replace(record.cost, states=[large, *small])
    text = "".join(page_of(record.model_copy(update={"cost": cost})).text)
    assert "2 other states" in text
    assert "0.04 USD" in text


def test_a_cost_without_a_price_is_no_number() -> None:
    record = full_record()
    assert record.cost is not None
    states = [replace(state, usd=None) for state in record.cost.states]
    cost = replace(record.cost, usd=None, prices=[], states=states)
    assert "No price of these nodes in us-west-2 is known." in "".join(
        page_of(record.model_copy(update={"cost": cost})).text
    )


def test_the_runs_that_a_run_continues_are_named_with_their_reports() -> None:
    record = full_record()
    spec = {**record.spec, "resume_from": ["bert-2", "bert-1"]}
    record = record.model_copy(update={"spec": spec})
    on_disk = page_of(record)
    assert "Continues bert-2, which continued bert-1" in " ".join("".join(on_disk.text).split())
    assert {"../bert-2/report.html", "../bert-1/report.html"} <= {link.get("href") for link in on_disk.all("a")}
    in_s3 = page_of(record, folder=f"s3://artifacts/runs/{record.run_id}/")
    links = " ".join(link.get("href") or "" for link in in_s3.all("a"))
    assert "prefix=runs%2Fbert-2%2Freport.html" in links and "prefix=runs%2Fbert-1%2Freport.html" in links
    assert "Continues" not in "".join(page_of(full_record()).text)


@pytest.mark.parametrize("odd", ["a run", 5, ["../etc", "", 7, "\x00", None, {}], {"a": 1}])
def test_what_a_refused_spec_says_of_earlier_runs_is_no_link(odd: Any) -> None:
    record = full_record()
    record = record.model_copy(update={"spec": {**record.spec, "resume_from": odd}})
    for folder in (None, f"s3://artifacts/runs/{record.run_id}/"):
        assert "Continues" not in "".join(page_of(record, folder=folder).text)
