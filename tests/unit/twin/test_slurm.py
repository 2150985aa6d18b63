"""What is known of the twin's Slurm without running it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from local.slurm import packages
from local.slurm.cluster import _loopback_address_of
from local.slurm.configuration import Partition, Ports, SlurmSettings, slurm_conf
from local.slurm.errors import SlurmError, SlurmMissing
from local.slurm.ports import free_ports
from trainflow.cli.main import app


def machine_with(folder: Path, *programs: str, jwt: bool) -> tuple[str, Path]:
    """A search path and a folder of libraries."""
    plugins = folder / "lib" / "some-arch" / "slurm-wlm"
    plugins.mkdir(parents=True)
    if jwt:
        (plugins / "auth_jwt.so").touch()
    for name in programs:
        (folder / name).touch(mode=0o755)
    return str(folder), folder / "lib"


def test_the_packages_that_are_missing_are_named_and_no_others(tmp_path: Path) -> None:
    search_path, libraries = machine_with(tmp_path, "slurmctld", "slurmd", "sinfo", "munged", jwt=False)
    with pytest.raises(SlurmMissing, match=r"install slurm-wlm-jwt-plugin slurmrestd$"):
        packages.require(search_path=search_path, libraries=libraries)


def test_a_machine_without_slurm_is_told_every_package(tmp_path: Path) -> None:
    with pytest.raises(SlurmMissing, match=r"apt-get install munge slurm-wlm slurm-wlm-jwt-plugin slurmrestd$"):
        packages.require(search_path=str(tmp_path), libraries=tmp_path)


def test_nothing_is_missing_where_everything_is(tmp_path: Path) -> None:
    search_path, libraries = machine_with(tmp_path, *packages.PACKAGES, jwt=True)
    packages.require(search_path=search_path, libraries=libraries)


def test_ports_differ_and_are_none_that_outgoing_connections_get() -> None:
    ports = free_ports(num_nodes=20)
    found = {ports.controller, ports.rest, *ports.nodes}
    assert len(found) == 22
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    assert max(found) < (int(ephemeral.read_text().split()[0]) if ephemeral.exists() else 32_768)


def test_the_configuration_says_what_was_asked_for() -> None:
    settings = SlurmSettings(
        num_nodes=3,
        cpus_per_node=4,
        memory_mib=1000,
        partitions=(Partition(name="all"), Partition(name="brief", num_nodes=1, max_minutes=2)),
        min_job_age_seconds=5,
    )
    text = slurm_conf(
        settings,
        host="machine",
        address="127.0.1.1",
        user="somebody",
        ports=Ports(controller=1, rest=2, nodes=(3, 4, 5)),
        folder=Path("/folder"),
        log_dir=Path("/logs"),
    )
    lines = text.splitlines()
    assert "NodeName=n2 NodeHostname=machine NodeAddr=127.0.1.1 Port=5 CPUs=4 RealMemory=1000 State=UNKNOWN" in lines
    assert "PartitionName=all Nodes=n0,n1,n2 Default=YES MaxTime=INFINITE State=UP" in lines
    assert "PartitionName=brief Nodes=n0 Default=NO MaxTime=2 State=UP" in lines
    assert {"MinJobAge=5", "SlurmUser=somebody", "SlurmctldPort=1"} <= set(lines)
    assert "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny" in lines, "no daemon listens beyond loopback"


def test_a_machine_whose_name_leads_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "192.0.2.7")
    with pytest.raises(SlurmError, match=r"'machine'.*192\.0\.2\.7.*127.* machine'"):
        _loopback_address_of("machine")


def test_a_slurm_spec_is_refused_in_one_sentence_where_slurm_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise SlurmMissing("install Debian's packages: apt-get install slurm-wlm")

    monkeypatch.setattr(packages, "require", missing)
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "version: 1\nname: some\nworkload: {module: trainer.pretrain}\n"
        "compute: {instance_type: trn1.32xlarge, backend: slurm}\n"
    )
    folders = ("--out", str(tmp_path / "out"), "--home", str(tmp_path / "home"))
    answer = CliRunner().invoke(app, ["run", str(spec), "--local", *folders])
    assert answer.exit_code == 2, answer.output
    assert answer.stderr == "trainflow: compute.backend: install Debian's packages: apt-get install slurm-wlm\n"
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]
