"""Folders of the twin: short enough for Unix sockets, plain enough for command lines."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

import boto3
import pytest
from kubetwin.kubeconfig import write_kubeconfig

from local import runtime_folder
from local.aws.session import SettingsAside, isolated_session
from trainflow.kubernetes.connection import from_kubeconfig

DEEPEST = "pods/volumes/123456789012/tmp/pymp-12345678/listener-12345678"


@pytest.mark.parametrize("name", ["x" * 100, "with a space", "with:colon", "über"])
def test_an_unfit_tmpdir_is_not_used_and_sockets_find_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    with runtime_folder.create("trainflow-") as folder, socket.socket(socket.AF_UNIX) as listener:
        assert runtime_folder.is_plain(folder)
        deepest = Path(folder, DEEPEST)
        assert len(str(deepest)) <= 103  # macOS; Linux has 107
        deepest.parent.mkdir(parents=True)
        listener.bind(str(deepest))


def test_a_plain_path_stays_itself_and_another_gets_a_link(tmp_path: Path) -> None:
    odd = tmp_path / "My Projects"
    odd.mkdir()
    assert runtime_folder.plain_path(tmp_path, link=tmp_path / "link") == tmp_path
    link = runtime_folder.plain_path(odd, link=tmp_path / "link")
    assert (link, link.resolve()) == (tmp_path / "link", odd.resolve())


def test_where_no_folder_can_be_made_the_message_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/x" * 50)
    monkeypatch.setattr(runtime_folder, "SHORT_BASE", "/nowhere")
    with pytest.raises(runtime_folder.NoRuntimeFolder, match="set TMPDIR to a folder"):
        runtime_folder.create("trainflow-")


def test_the_interpreter_keeps_its_name() -> None:
    assert runtime_folder.plain_python(link=Path("/unused")).name == Path(sys.executable).name


def test_the_twins_clients_read_neither_environment_nor_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[default]\nregion = mars-1\nendpoint_url = http://127.0.0.1:9\n")
    for name, value in {
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_PROFILE": "missing",
        "AWS_MAX_ATTEMPTS": "many",
        "AWS_REGION": "mars-1",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    client = isolated_session().client(
        "s3",
        endpoint_url="http://localhost:1",
        region_name="us-west-2",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    assert (client.meta.region_name, client.meta.config.proxies) == ("us-west-2", {})


def test_settings_that_were_put_aside_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "missing")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    before = dict(os.environ)
    aside = SettingsAside()
    aside.put_back()  # nothing was taken
    assert dict(os.environ) == before
    aside.take()
    assert boto3.Session().profile_name == "default"
    aside.put_back()
    assert dict(os.environ) == before


def test_a_cluster_of_this_machine_is_behind_no_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    for host, proxy in {"127.0.0.1": None, "cluster.example": "http://proxy.example:3128"}.items():
        write_kubeconfig(tmp_path / host, endpoint=f"https://{host}:6443", ca_pem="", token="t")
        assert from_kubeconfig(tmp_path / host).configuration.proxy == proxy
