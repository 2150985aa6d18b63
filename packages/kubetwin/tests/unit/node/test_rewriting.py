from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubetwin.node.rewriting import NameRewriter, PathRewriter

PATHS = PathRewriter(
    {"/data": "/host/d", "/data/inner": "/host/inner", "/dev/termination-log": "/pod/message", "/runs/": "/host/r"}
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/data", "/host/d"),
        ("/data/", "/host/d/"),
        ("/data/demo/a b", "/host/d/demo/a b"),
        ("/data/inner/x", "/host/inner/x"),
        ("/data/innermost", "/host/d/innermost"),
        ("--data_dir=/data/demo", "--data_dir=/host/d/demo"),
        ("-o=/runs/1", "-o=/host/r/1"),
        ("/usr/lib:/data/lib:/runs", "/usr/lib:/host/d/lib:/host/r"),
        ("--path=/data:/runs/x", "--path=/host/d:/host/r/x"),
        ("/dev/termination-log", "/pod/message"),
        (
            '{\n  "a": {"from": "/data/x", "n": 1},\n  "b": ["--c=/runs/1", "\\u20ac"]\n}',
            '{\n  "a": {"from": "/host/d/x", "n": 1},\n  "b": ["--c=/host/r/1", "\\u20ac"]\n}',
        ),
        ('["/data"]', '["/host/d"]'),
    ],
)
def test_mount_paths_become_host_paths(value: str, expected: str) -> None:
    assert PATHS.value(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "/database",
        "/datasets/data",
        "data",
        "./data/x",
        "/mnt/data/x",
        "s3://data/x",
        "file:///data/x",
        "https://host/data/x",
        "see /data for the shards",
        "x=/data",
        "--flag",
        "",
    ],
)
def test_texts_that_only_resemble_a_mount_path_are_not_changed(value: str) -> None:
    assert PATHS.value(value) == value


@given(st.text().filter(lambda text: "/data" not in text and "/runs" not in text and "/dev" not in text))
def test_values_without_mount_paths_stay_untouched(value: str) -> None:
    assert PATHS.value(value) == value


@given(st.from_regex(r"[A-Za-z0-9_.-]{1,20}(/[A-Za-z0-9_.-]{1,20}){0,3}", fullmatch=True))
def test_everything_below_a_mount_keeps_its_place(path: str) -> None:
    assert PathRewriter({"/mnt/v": "/host"}).value(f"/mnt/v/{path}") == f"/host/{path}"


@given(st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True))
def test_a_longer_name_is_another_folder(suffix: str) -> None:
    assert PATHS.value(f"/data{suffix}") == f"/data{suffix}"


def names_of(*services: tuple[str, str]) -> NameRewriter:
    return NameRewriter("training", lambda _host, name, namespace: (name, namespace) in services)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("job-0.job", "127.0.0.1"),
        ("job-0.job.training", "127.0.0.1"),
        ("job-0.job.training.svc", "127.0.0.1"),
        ("job-0.job.training.svc.cluster.local", "127.0.0.1"),
        ("job-0.job:29500", "127.0.0.1:29500"),
        ("--master_addr=job-0.job", "--master_addr=127.0.0.1"),
        ("tcp://job-0.job:29500/store", "tcp://127.0.0.1:29500/store"),
        ("job-0.job,job-1.job", "127.0.0.1,127.0.0.1"),
    ],
)
def test_pod_names_become_the_loopback_address(value: str, expected: str) -> None:
    assert names_of(("job", "training")).value(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "trainer.pretrain",
        "job-0.job.other",
        "job-0.jobs",
        "job-0.job.py",
        "/runs/job-0.job",
        "s3://bucket/job-0.job",
        "me@job-0.job",
        "my_job-0.job",
        "0.5",
        "job",
    ],
)
def test_other_words_than_names_of_pods_are_not_changed(value: str) -> None:
    assert names_of(("job", "training")).value(value) == value


def test_a_service_of_another_namespace_is_found_there() -> None:
    assert names_of(("job", "other")).value("job-0.job.other.svc:1") == "127.0.0.1:1"


def test_each_name_is_looked_up_once() -> None:
    asked: list[str] = []
    names = NameRewriter("training", lambda host, name, _namespace: bool(asked.append(f"{host}.{name}")))
    names.value("a.b a.b c.b")
    assert asked == ["a.b", "c.b"]


@given(st.text())
def test_without_services_nothing_is_rewritten(value: str) -> None:
    assert names_of().value(value) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("pt-master-0", "127.0.0.1"),
        ("pt-master-0:23456", "127.0.0.1:23456"),
        ("--full_host=pt-master-0.training.svc.cluster.local", "--full_host=127.0.0.1"),
        ("--master_addr=pt-master-0", "--master_addr=127.0.0.1"),
        ("tcp://pt-master-0:1/x", "tcp://127.0.0.1:1/x"),
        ("if nslookup pt-master-0; then", "if nslookup 127.0.0.1; then"),
        ("pt-worker-0", "pt-worker-0"),
        ("/runs/pt-master-0", "/runs/pt-master-0"),
        ("my-pt-master-0", "my-pt-master-0"),
        ("pt-master-0-log", "pt-master-0-log"),
    ],
)
def test_a_service_of_one_replica_names_its_pod_without_a_domain(value: str, expected: str) -> None:
    names = NameRewriter("training", lambda *_: False, lambda name, _namespace: name == "pt-master-0")
    assert names.value(value) == expected
