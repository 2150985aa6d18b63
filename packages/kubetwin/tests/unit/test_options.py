from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from kubetwin import __main__ as command


@pytest.mark.parametrize("arguments", [("--nodes", "0"), ("gateway", "--kubeconfig", "k")])
def test_logins_as_on_eks_need_the_library_that_signs_requests(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    present = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "botocore" else present(name))
    monkeypatch.chdir(tmp_path)
    eks = ("--sts-endpoint", "http://localhost:1", "--cluster-name", "c")
    monkeypatch.setattr(sys, "argv", ["kubetwin", *arguments, *eks])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said == "error: --sts-endpoint: requests for access entries are signed; install kubetwin[eks]\n"
