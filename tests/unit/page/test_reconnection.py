"""A page of an earlier start is known again by its proof, for this port, once."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from trainflow.page.app import PageApp
from trainflow.page.library import RunLibrary
from trainflow.page.reconnection import FILE_NAME, MAX_OPEN, Reconnection, kept_key

KEY, PORT = "b" * 64, 8000


def signed(number: str, *, key: str = KEY, port: int = PORT) -> str:
    return hmac.new(key.encode(), f"{port} {number}".encode(), hashlib.sha256).hexdigest()


def test_a_number_is_proven_once() -> None:
    reconnection = Reconnection(key=KEY, port=PORT)
    number = reconnection.number()
    assert reconnection.is_proven(number, signed(number))
    assert not reconnection.is_proven(number, signed(number))


def test_another_key_another_port_and_an_own_number_prove_nothing() -> None:
    reconnection = Reconnection(key=KEY, port=PORT)
    for key, port in (("c" * 64, PORT), (KEY, 8001)):
        number = reconnection.number()
        assert not reconnection.is_proven(number, signed(number, key=key, port=port))
    assert not reconnection.is_proven("0" * 32, signed("0" * 32))
    for proof in ("ä", "\ud800"):
        assert not reconnection.is_proven(reconnection.number(), proof)


def test_numbers_without_a_proof_are_forgotten() -> None:
    reconnection = Reconnection(key=KEY, port=PORT)
    oldest = reconnection.number()
    for _ in range(MAX_OPEN):
        reconnection.number()
    assert not reconnection.is_proven(oldest, signed(oldest))


def test_a_proof_gives_the_cookie_of_this_start(tmp_path: Path) -> None:
    app = PageApp(RunLibrary(folder=tmp_path), form_token="form", reconnection=Reconnection(key=KEY, port=PORT))
    client = TestClient(app.guarded(token="right", port=PORT), base_url=f"http://127.0.0.1:{PORT}")
    for body in (b"", b"[]", b"{}", b"x" * 5000, b'{"nonce": 1, "proof": null}', b"[" * 1000):
        assert client.post("/reconnect", content=body).status_code == 403
    assert client.get("/").status_code == 403
    number = client.get("/reconnect").json()["nonce"]
    foreign = {"origin": "http://evil.example"}
    given = {"nonce": number, "proof": signed(number)}
    assert client.post("/reconnect", json=given, headers=foreign).status_code == 403
    assert client.post("/reconnect", json=given).status_code == 204
    assert client.get("/").status_code == 200


def test_the_key_is_kept_for_its_owner_only(tmp_path: Path) -> None:
    key = kept_key(tmp_path / "home")
    assert kept_key(tmp_path / "home") == key
    assert (tmp_path / "home" / FILE_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("spoil", ["mode", "text", "link"])
def test_a_key_that_others_may_know_is_not_used(tmp_path: Path, spoil: str) -> None:
    key = kept_key(tmp_path)
    path = tmp_path / FILE_NAME
    if spoil == "mode":
        path.chmod(0o644)
    elif spoil == "text":
        path.write_text("short")
    else:
        path.rename(tmp_path / "other")
        path.symlink_to(tmp_path / "other")
    assert len(kept_key(tmp_path)) == 64
    assert kept_key(tmp_path) != key
