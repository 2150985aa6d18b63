"""Certificates, kubeconfigs and ports."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from kubetwin.certificates import create_authority, issue_certificate
from kubetwin.kubeconfig import write_kubeconfig
from kubetwin.server import ApiServer, PortInUse


def test_a_server_certificate_is_signed_by_the_authority_and_names_its_hosts() -> None:
    authority = create_authority()
    issued = issue_certificate(authority, "kubelet", hosts=["localhost", "127.0.0.1"])
    certificate = x509.load_pem_x509_certificate(issued.certificate_pem.encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate_pem.encode()))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_a_kubeconfig_is_private_and_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "kubeconfig"
    for token in ("first", "second"):
        write_kubeconfig(path, endpoint="https://127.0.0.1:1", ca_pem="pem", token=token)
    assert path.stat().st_mode & 0o777 == 0o600
    assert yaml.safe_load(path.read_text())["users"][0]["user"]["token"] == "second"
    assert list(path.parent.iterdir()) == [path]


def test_a_port_in_use_raises_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse) as refused:
            ApiServer(port=port).start()
    assert str(refused.value) == (
        f"port {port} on 127.0.0.1 is in use by another program: choose another port, or 0 for a free one"
    )
