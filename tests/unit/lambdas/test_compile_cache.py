"""Which cache a run's graphs are in, who compiles them, and what happens when two want to, or one goes away."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.gateways import executions
from lambdas.gateways.compile_caches import CompileCaches
from lambdas.handlers import acquire_cache, backends, check_compilation, clean_up, tear_down
from lambdas.logic.compile_cache import cache_key
from lambdas.logic.jobs import Job, job_of
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import SPEC, run_of, spec_with
from tests.unit.lambdas.conftest import CACHE_TABLE, CONTEXT, Aws
from trainflow.protocol.compile_cache import NEVER_SHAPE_GRAPHS
from trainflow.protocol.plan import AbandonedLocks, CompileCache, LockedMemory, Precompile
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.compile_cache import CacheState, CacheUse, Hold, new_lease, own_folder
from trainflow.workflow.event_bound import LONGEST_CACHE_WAIT
from trainflow.workflow.run import Run, Stage
from trainflow.workflow.run_table import row_of

DIGEST = "registry.example/trainer@sha256:" + "0" * 64
KEY = cache_key(parse_run_spec(SPEC), image_digest=None)
FLAGS = st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True)
VALUES = st.one_of(
    st.integers(-1000, 1000),
    st.booleans(),
    st.text(st.characters(codec="ascii", exclude_characters="\0{}"), max_size=8),
)


def key_of(**fields: Any) -> str:
    return cache_key(parse_run_spec(spec_with(**fields)), image_digest=None)


@given(
    arguments=st.dictionaries(FLAGS, VALUES, max_size=5), name=st.sampled_from(sorted(NEVER_SHAPE_GRAPHS)), value=VALUES
)
def test_how_long_how_fast_and_where_changes_no_graph(arguments: dict[str, Any], name: str, value: Any) -> None:
    assert key_of(workload__arguments={**arguments, name: value}) == key_of(workload__arguments=arguments)


@given(arguments=st.dictionaries(FLAGS, VALUES, max_size=5), name=FLAGS, value=VALUES)
def test_every_other_argument_counts_unless_the_spec_says_that_it_does_not(
    arguments: dict[str, Any], name: str, value: Any
) -> None:
    without = {flag: given for flag, given in arguments.items() if flag != name}
    same = key_of(workload__arguments={**without, name: value}) == key_of(workload__arguments=without)
    assert same == (name in NEVER_SHAPE_GRAPHS)
    ignoring = {"precompile": {"ignore_arguments": [name]}}
    one, other = (key_of(workload__arguments=given, **ignoring) for given in ({**without, name: value}, without))
    assert one == other


@given(arguments=st.dictionaries(FLAGS, VALUES, min_size=2, max_size=5))
def test_the_order_of_arguments_does_not_count(arguments: dict[str, Any]) -> None:
    backwards = dict(reversed(arguments.items()))
    assert key_of(workload__arguments=backwards) == key_of(workload__arguments=arguments)


@pytest.mark.parametrize(
    "changed",
    [
        {"workload__image": "registry.example/trainer@sha256:" + "0124" * 16},
        {"workload__module": "trainer.other"},
        {"dataset__url": "s3://corpus/wikicorpus_seqlen512.tar"},
        {"compute__num_nodes": 4},
        {"compute__processes_per_node": 8},
        {"precompile": {"steps": 5}},
        {"precompile": {"cacheset": "mine"}},
        {"workload__arguments": {"compile": False}},
        {"workload__code": f"s3://artifacts/code/{'0' * 64}.tar.gz"},
    ],
    ids=str,
)
def test_what_changes_graphs_changes_the_key(changed: dict[str, Any]) -> None:
    assert key_of(**changed) != KEY


def test_another_chip_has_graphs_of_its_own() -> None:
    """A spec with one process a node, which every chip supports."""
    trn1, trn2 = (
        key_of(compute__instance_type=name, compute__processes_per_node=1)
        for name in ("trn1.32xlarge", "trn2.48xlarge")
    )
    assert trn1 != trn2


def test_another_data_set_counts_unless_the_spec_says_that_its_shapes_are_the_same() -> None:
    urls = ("s3://corpus/monday.tar", "s3://corpus/tuesday.tar")
    assert len({key_of(dataset={"url": url}) for url in urls}) == 2
    assert len({key_of(dataset={"url": url}, precompile={"ignore_dataset": True}) for url in urls}) == 1


def test_elastic_limits_change_the_key() -> None:
    worlds = [
        key_of(compute__backend="pytorchjob", compute__elastic=elastic)
        for elastic in (None, {"min_nodes": 1, "max_nodes": 2}, {"min_nodes": 1, "max_nodes": 4})
    ]
    assert len(set(worlds)) == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"limits": {"poll_seconds": 60}},
        {"teardown": {"on_failure": False}},
        {"compute__backend": "jobset"},
    ],
    ids=str,
)
def test_what_leaves_graphs_alone_leaves_the_key_alone(changed: dict[str, Any]) -> None:
    assert key_of(**changed) == KEY


def test_a_digest_counts_and_not_the_names_of_the_image_that_has_it() -> None:
    spec = parse_run_spec(SPEC)
    known = cache_key(spec, image_digest=DIGEST)
    assert known != KEY
    assert cache_key(parse_run_spec(spec_with(workload__image="other:1")), image_digest=DIGEST) == known
    assert cache_key(spec, image_digest="docker-pullable://mirror/t@sha256:" + "0" * 64) == known
    assert cache_key(spec, image_digest="x@sha256:" + "1" * 64) != known


def test_a_key_begins_as_people_call_it_and_is_a_folders_name() -> None:
    assert KEY.startswith("bert-")
    assert key_of(precompile={"cacheset": "large-128"}).startswith("large-128-")
    assert len(KEY) == len("bert-") + 12


# ---------------------------------------------------------------------------------------------------------------------


def start(aws: Aws, name: str) -> Run:
    """A run with an execution that goes on."""
    run = run_of(run_id=f"bert-{name:0>12}")
    started = executions.start(aws.state_machine_arn, name=run.run_id, document="{}")
    return run.model_copy(update={"execution_arn": started.arn})


def stop(aws: Aws, run: Run) -> None:
    aws.client("stepfunctions").stop_execution(executionArn=run.execution_arn)


def acquire(run: Run, **event: Any) -> dict[str, Any]:
    given = {"image_digest": None, "lost_cache": None, "waiting_since": None, **event}
    return acquire_cache.lambda_handler({"run": run.model_dump(mode="json"), **given}, CONTEXT)


def caches() -> CompileCaches:
    return CompileCaches(CACHE_TABLE)


def seal(run: Run) -> bool:
    return caches().seal(KEY, run.run_id, graphs=6, now=datetime.now(UTC))


def test_the_first_run_compiles_and_the_next_finds_what_it_made(aws: Aws) -> None:
    first, second = start(aws, "1"), start(aws, "2")
    mine = acquire(first)
    assert (mine["acquired"], mine["compilation"]) == (True, None)
    assert mine["cache"] == {"key": KEY, "folder": f"{KEY}/{first.run_id}", "hold": "lease"}
    assert acquire(first) == mine, "safe to repeat"

    waiting = acquire(second)
    assert (waiting["acquired"], waiting["cache"], waiting["waiting_for"]) == (False, None, first.run_id)
    assert waiting["wait_seconds"] == first.spec.limits.poll_seconds

    assert seal(first)
    found = acquire(second, waiting_since=waiting["waiting_since"])
    assert found["cache"] == {"key": KEY, "folder": f"{KEY}/{first.run_id}", "hold": "read"}
    assert found["compilation"] == {"graphs": 6, "succeeded": 6, "failed": 0, "cache": "hit"}


@pytest.mark.parametrize("known", [True, False], ids=["stopped", "forgotten"])
def test_the_lease_of_a_run_that_is_over_is_taken_over(aws: Aws, known: bool) -> None:
    first, second = start(aws, "1"), start(aws, "2")
    if not known:
        first = first.model_copy(update={"execution_arn": first.execution_arn.replace(first.run_id, "long-gone")})
    acquire(first)
    if known:
        stop(aws, first)
    assert acquire(second)["cache"] == {"key": KEY, "folder": f"{KEY}/{second.run_id}", "hold": "lease"}
    assert not seal(first), "it is not its own any more"
    assert seal(second)
    assert seal(second), "safe to repeat"


@pytest.mark.parametrize("stale", [True, False], ids=["of a dead owner", "free"])
def test_of_many_that_want_a_lease_one_gets_it(aws: Aws, stale: bool) -> None:
    dead = start(aws, "dead")
    if stale:
        acquire(dead)
    found, now = caches().find(KEY), datetime.now(UTC)
    barrier, taken = threading.Barrier(8), list[str]()

    def take(run: Run) -> None:
        lease = new_lease(run, KEY, now=now)
        barrier.wait()
        if caches().lease(lease, instead_of=found):
            taken.append(run.run_id)

    threads = [threading.Thread(target=take, args=(run_of(run_id=f"bert-{n:012}"),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    holder = caches().find(KEY)
    assert holder is not None
    assert taken == [holder.run_id]


def test_who_waits_too_long_compiles_for_itself(aws: Aws) -> None:
    first, second = start(aws, "1"), start(aws, "2")
    acquire(first)
    since = datetime.now(UTC) - LONGEST_CACHE_WAIT - timedelta(seconds=1)
    assert acquire(second, waiting_since=since.isoformat())["cache"] == {
        "key": KEY,
        "folder": own_folder(second.run_id),
        "hold": "own",
    }


def test_a_cache_whose_folder_is_missing_is_compiled_again_once(aws: Aws) -> None:
    maker, first, second = start(aws, "1"), start(aws, "2"), start(aws, "3")
    acquire(maker)
    seal(maker)
    lost = acquire(first)["cache"]
    assert acquire(first, lost_cache=lost)["cache"]["hold"] == "lease"
    assert acquire(second, lost_cache=lost)["waiting_for"] == first.run_id, "it was lost for both"
    seal(first)
    assert acquire(second, lost_cache=lost)["cache"]["folder"] == f"{KEY}/{first.run_id}"


def test_a_run_that_has_nodes_compiles_for_itself_and_does_not_wait(aws: Aws) -> None:
    maker, first, second = start(aws, "1"), start(aws, "2"), start(aws, "3")
    acquire(maker)
    seal(maker)
    lost = acquire(second)["cache"]
    acquire(first, lost_cache=lost)
    own = acquire(second, cache=lost, lost_cache=lost)["cache"]
    assert own == {"key": KEY, "folder": own_folder(second.run_id), "hold": "own"}
    seal(first)
    assert acquire(second, cache=own, lost_cache=lost)["cache"] == own, "nor does it change folders between attempts"


def test_a_run_that_lost_what_it_compiled_itself_compiles_it_again_and_keeps_its_lease(aws: Aws) -> None:
    run = start(aws, "1")
    mine = acquire(run)["cache"]
    seal(run)
    for _ in range(2):  # the second time after an attempt at it that failed
        assert acquire(run, cache=mine, lost_cache=mine)["cache"] == mine
        found = caches().find(KEY)
        assert found is not None
        assert found.state is CacheState.COMPILING


def test_a_cache_that_is_used_is_kept(aws: Aws) -> None:
    maker, later = start(aws, "1"), datetime.now(UTC) + timedelta(days=30)
    acquire(maker)
    seal(maker)
    ready = caches().find(KEY)
    assert ready is not None
    assert caches().touch(ready, now=later)
    kept = caches().find(KEY)
    assert kept is not None
    assert kept.expires_at - ready.expires_at == pytest.approx(30 * 86400, abs=60)
    assert (kept.state, kept.graphs, kept.run_id) == (CacheState.READY, 6, maker.run_id)


def test_tear_down_gives_an_unfinished_cache_back_and_keeps_a_ready_one(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup("trn1.32xlarge")
    run, other = start(aws, "1"), start(aws, "2")
    acquire(run)
    for _ in range(2):
        tear_down.lambda_handler({"run": run.model_dump(mode="json")}, CONTEXT)
        assert caches().find(KEY) is None
    acquire(other)
    tear_down.lambda_handler({"run": run.model_dump(mode="json")}, CONTEXT)
    assert caches().find(KEY) is not None, "another run has the lease"
    seal(other)
    tear_down.lambda_handler({"run": other.model_dump(mode="json")}, CONTEXT)
    assert caches().find(KEY) is not None


def test_a_run_that_is_stopped_gives_its_lease_back(aws: Aws, cluster: FakeKubernetesApi) -> None:
    aws.add_nodegroup("trn1.32xlarge")
    run = start(aws, "1")
    aws.table.begin(row_of(run))
    acquire(run)
    detail = {"name": run.run_id, "executionArn": run.execution_arn, "status": "ABORTED"}
    clean_up.lambda_handler({"detail": detail}, CONTEXT)
    assert caches().find(KEY) is None


# ---------------------------------------------------------------------------------------------------------------------

SHARED = CacheUse(key=KEY, folder=f"{KEY}/bert-0123456789ab", hold=Hold.READ)


def behind_the_check(job: Job) -> list[Any]:
    """The steps of a node that lets enough memory be locked, and that holds no lock of an earlier attempt."""
    assert job.plan is not None
    check, *steps = job.plan.steps
    assert isinstance(check, LockedMemory)
    return [step for step in steps if not isinstance(step, AbandonedLocks)]


def test_an_attempt_after_the_first_begins_without_the_locks_of_the_one_before() -> None:
    run, own = run_of(), "/cache/runs/bert-0123456789ab"
    first, second = (job_of(run, Stage.TRAINING, attempt, artifacts_url="s3://a/").plan for attempt in (1, 2))
    assert first is not None
    assert second is not None
    assert first.abandoned_locks is None
    assert second.abandoned_locks == AbandonedLocks(
        job="bert-0123456789ab-training-2", caches=(own,), results=("/runs/bert-0123456789ab",)
    )
    compiled = job_of(run, Stage.PRECOMPILE, 2, artifacts_url="s3://a/", cache=SHARED).plan
    assert compiled is not None
    assert compiled.abandoned_locks is not None
    assert compiled.abandoned_locks.caches == (own, f"/cache/{SHARED.folder}")


def test_only_the_precompile_job_works_in_the_shared_folder() -> None:
    run, folder = run_of(), f"/cache/{SHARED.folder}"
    precompile = job_of(run, Stage.PRECOMPILE, 1, artifacts_url="s3://a/", cache=SHARED)
    assert precompile.environment["NEURON_COMPILE_CACHE_URL"] == f"{folder}/neuron"
    assert behind_the_check(precompile)[0] == Precompile()
    training = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/", cache=SHARED)
    plain = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/")
    assert behind_the_check(training) == [CompileCache(source=folder), *behind_the_check(plain)]


def test_a_second_attempt_compiles_failed_graphs_again() -> None:
    steps = behind_the_check(job_of(run_of(), Stage.PRECOMPILE, 2, artifacts_url="s3://a/", cache=SHARED))
    assert steps[0] == Precompile(retry_failed=True)


def test_a_run_that_does_not_precompile_has_a_cache_that_no_other_run_writes() -> None:
    run, other = run_of(), run_of(run_id="bert-ffffffffffff")
    folders = [
        job_of(one, Stage.TRAINING, attempt, artifacts_url="s3://a/").environment["TRAINFLOW_CACHE_DIR"]
        for one, attempt in ((run, 1), (run, 2), (other, 1))
    ]
    assert folders[0] == folders[1] != folders[2]
    assert folders[0] == f"/cache/{own_folder(run.run_id)}"


def counts(event: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    lines = [f"x: INFO ||PARALLEL_COMPILE||: Total {what}" for what in ("graphs: 6", "successful compilations: 6")]
    backend: Any = type("Backend", (), {"rank0": lambda *_: "pod", "read_log": lambda *_a, **_k: map(Line, lines)})()
    monkeypatch.setattr(backends, "connect", lambda *_: backend)
    return check_compilation.lambda_handler(event, CONTEXT)


class Line:
    def __init__(self, text: str) -> None:
        self.text = text


@pytest.mark.parametrize("held", [True, False])
def test_graphs_that_compiled_are_declared_ready_by_who_holds_the_lease(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    run = start(aws, "1")
    cache = acquire(run)["cache"]
    if not held:
        caches().release(run.run_id)
    job = job_of(run, Stage.PRECOMPILE, 1, artifacts_url="s3://a/").ref.model_dump(mode="json")
    event = {"run": run.model_dump(mode="json"), "job": job, "cache": cache}
    assert counts(copy.deepcopy(event), monkeypatch)["cache"] == "miss"
    assert counts(event, monkeypatch)["graphs"] == 6, "safe to repeat"
    found = caches().find(KEY)
    assert (found is not None and found.state is CacheState.READY) is held


def test_trouble_with_dynamodb_is_worth_a_retry(aws: Aws, refusing: Callable[[str, str | None], None]) -> None:
    from trainflow.errors import ServiceUnavailable

    refusing("PutItem", "ProvisionedThroughputExceededException")
    with pytest.raises(ServiceUnavailable, match="dynamodb:PutItem"):
        acquire(start(aws, "1"))
