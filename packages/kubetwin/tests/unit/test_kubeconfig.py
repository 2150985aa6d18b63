from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetwin.kubeconfig import KubeconfigError, load_connection


def kubeconfig(tmp_path: Path, *, user: dict[str, Any] | None = None, server: str = "http://127.0.0.1:1/") -> Path:
    path = tmp_path / "config"
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_token_becomes_the_authorization_header(tmp_path: Path) -> None:
    connection = load_connection(kubeconfig(tmp_path, user={"token": "t"}))
    assert (connection.server, connection.authorization()) == ("http://127.0.0.1:1", "Bearer t")


def test_a_token_file_is_read_anew_for_every_request(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first\n")
    connection = load_connection(kubeconfig(tmp_path, user={"tokenFile": "token"}))
    assert connection.authorization() == "Bearer first"
    token_file.write_text("second\n")
    assert connection.authorization() == "Bearer second"


def test_a_login_command_provides_the_token(tmp_path: Path) -> None:
    program = 'print(\'{"status": {"token": "from-command"}}\')'
    user = {"exec": {"command": sys.executable, "args": ["-c", program]}}
    assert load_connection(kubeconfig(tmp_path, user=user)).authorization() == "Bearer from-command"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "not valid YAML"),
        ("text", "is not a kubeconfig"),
        ("current-context: x", "no context named 'x'"),
        ("{current-context: x, contexts: [{name: x, context: {cluster: c}}]}", "no cluster named 'c'"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_named_with_its_fault(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=message) as error:
        load_connection(path)
    assert str(path) in str(error.value)


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"nope: .*kubeconfig: No such file"):
        load_connection(tmp_path / "nope")


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1")
    config = yaml.safe_load(path.read_text())
    config["clusters"][0]["cluster"]["certificate-authority-data"] = "bm9uZQ=="
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(KubeconfigError, match="certificate, key or token cannot be used"):
        load_connection(path)
