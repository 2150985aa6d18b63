"""The twin's Slurm: Debian's own daemons, asked through slurmrestd as the functions ask them."""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import psutil
import pytest
import urllib3

from lambdas.backends.slurm.forms import parse_partition, submission_form
from local.slurm import packages
from local.slurm.cluster import SlurmCluster
from local.slurm.configuration import SlurmSettings
from local.twin import REPOSITORY, Twin
from tests.integration.strangers import (
    NOBODY,
    answers_to_another_user,
    granted,
    listening,
    only_root,
    run_as_another_user,
)
from tests.integration.test_interruption import alive
from tests.waiting import PATIENCE, wait_until
from trainflow.deployment.slurm import JobComment, Submission, default_partition

pytestmark = pytest.mark.slurm

API = "/slurm/v0.0.38"
SLEEPER = "#!/bin/bash\nsrun bash -c 'setsid sleep 600 & wait'\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(SlurmSettings(num_nodes=3), log_dir=tmp_path_factory.mktemp("slurm")) as running:
        yield running


def token(key: bytes, user: str, *, seconds: int = 60) -> str:
    now = int(time.time())
    return jwt.encode({"iat": now - 120, "exp": now + seconds, "sun": user}, key, algorithm="HS256")


def ask(
    cluster: SlurmCluster, method: str, path: str, body: Any = None, *, key: bytes | None = None, seconds: int = 60
) -> urllib3.BaseHTTPResponse:
    credential = token(key or cluster.jwt_key, cluster.user, seconds=seconds)
    return urllib3.request(
        method,
        cluster.rest_url + API + path,
        json=body,
        headers={"X-SLURM-USER-NAME": cluster.user, "X-SLURM-USER-TOKEN": credential},
        retries=False,
        timeout=PATIENCE,
    )


def submit(cluster: SlurmCluster, script: str, output: Path, **properties: Any) -> int:
    job = {
        "name": "test",
        "nodes": 2,
        "tasks": 2,
        "environment": {"PATH": "/usr/bin:/bin"},
        "current_working_directory": str(output.parent),
        "standard_output": str(output),
        **properties,
    }
    answer = ask(cluster, "POST", "/job/submit", {"script": script, "job": job})
    assert answer.status == 200, answer.data
    return int(answer.json()["job_id"])


def state(cluster: SlurmCluster, job: int) -> str:
    return str(ask(cluster, "GET", f"/job/{job}").json()["jobs"][0]["job_state"])


def conf_of(cluster: SlurmCluster) -> str:
    return cluster.environment["SLURM_CONF"]


def processes_of(conf: str) -> list[psutil.Process]:
    """Daemons, their supervisors, and what jobs have started: all of them carry the configuration's path."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has just ended
            if process.environ().get("SLURM_CONF") == conf and alive(process):
                found.append(process)
    return found


def sleepers(conf: str) -> set[str]:
    """Nodes on which a `SLEEPER` sleeps."""
    nodes = set()
    for process in processes_of(conf):
        with suppress(psutil.Error):
            if process.name() == "sleep":
                nodes.add(process.environ()["SLURMD_NODENAME"])
    return nodes


def test_a_job_that_came_by_rest_runs_on_both_of_its_nodes(cluster: SlurmCluster, tmp_path: Path) -> None:
    output = tmp_path / "out"
    script = "#!/bin/bash\nsrun bash -c 'echo $SLURM_NODEID $SLURMD_NODENAME $(id -un)' | sort\n"
    job = submit(cluster, script, output)
    wait_until(lambda: state(cluster, job) == "COMPLETED")
    lines = [line.split() for line in output.read_text().splitlines()]
    assert [(rank, user) for rank, _node, user in lines] == [("0", cluster.user), ("1", cluster.user)]
    assert len({node for _rank, node, _user in lines}) == 2


def limit_slurmd(cluster: SlurmCluster, *, mebibytes: int) -> None:
    """Let the nodes' daemons lock so much memory, as LimitMEMLOCK of their service would."""
    for process in processes_of(conf_of(cluster)):
        if process.name() == "slurmd":
            process.rlimit(psutil.RLIMIT_MEMLOCK, (mebibytes * 1024**2,) * 2)


def test_a_job_that_came_by_rest_may_lock_as_much_memory_as_slurmd(tmp_path: Path) -> None:
    with SlurmCluster(SlurmSettings(num_nodes=2), log_dir=tmp_path / "logs") as cluster:
        limit_slurmd(cluster, mebibytes=3)
        output = tmp_path / "out"
        job = submit(cluster, "#!/bin/bash\nsrun bash -c 'ulimit -l'\n", output)
        wait_until(lambda: state(cluster, job) == "COMPLETED")
        assert output.read_text().split() == ["3072", "3072"]


def test_tokens_that_are_out_of_date_or_of_another_key_are_refused(cluster: SlurmCluster) -> None:
    assert ask(cluster, "GET", "/ping").status == 200
    assert ask(cluster, "GET", "/jobs", seconds=-60).status != 200
    assert ask(cluster, "GET", "/jobs", key=b"k" * 32).status != 200


def test_everything_listens_on_loopback(cluster: SlurmCluster) -> None:
    listening = [
        connection.laddr.ip
        for process in processes_of(conf_of(cluster))
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) == 2 + cluster.settings.num_nodes
    assert {ip.partition(".")[0] for ip in listening} == {"127"}


@only_root
def test_another_user_has_nothing_from_any_port_or_socket_of_slurm(cluster: SlurmCluster) -> None:
    answers = answers_to_another_user(listening(processes_of(conf_of(cluster))))
    rest = urlsplit(cluster.rest_url).netloc
    assert answers[f"{rest} http GET /slurm/v0.0.38/jobs"] == answers[f"{rest} http GET /openapi"] == 401
    assert answers[str(cluster.folder / "munge.socket")] == "PermissionError"
    assert granted(answers) == {}


COMMANDS = {"squeue": "--noheader", "sinfo": "--noheader", "scontrol": "shutdown", "srun": "id", "sbatch": "--wrap=id"}


@only_root
def test_another_user_who_knows_the_configuration_reads_and_runs_nothing(cluster: SlurmCluster) -> None:
    """Neither with the cluster's own munged, whose path every list of processes shows, nor with one of its own."""
    with tempfile.TemporaryDirectory(prefix="stranger-", dir="/tmp") as folder:
        conf, key, own = Path(folder) / "slurm.conf", Path(folder) / "munge.key", Path(folder) / "munge.socket"
        key.touch(mode=0o600)
        key.write_bytes(b"k" * 128)
        for path in (Path(folder), key):
            os.chown(path, NOBODY, NOBODY)
        Path(folder).chmod(0o755)
        files = [f"--{name}-file={folder}/{name}" for name in ("pid", "seed", "log")]
        command = [packages.program("munged"), "--foreground", f"--key-file={key}", f"--socket={own}", *files]
        with subprocess.Popen(command, user=NOBODY, group=NOBODY, extra_groups=[], stderr=subprocess.DEVNULL) as munged:
            try:
                wait_until(own.exists)
                for vouching in (cluster.folder / "munge.socket", own):
                    known = (cluster.folder / "slurm.conf").read_text()
                    conf.write_text(re.sub("(?m)^AuthInfo=.*", f"AuthInfo=socket={vouching}", known))
                    for name, argument in COMMANDS.items():
                        environment = {**cluster.environment, "SLURM_CONF": str(conf)}
                        done = run_as_another_user(packages.program(name), argument, environment=environment)
                        assert (done.returncode != 0, done.stdout) == (True, ""), (vouching, name, done)
            finally:
                munged.terminate()
    assert cluster.command("squeue", "--noheader", "--user=nobody") == ""


def test_a_job_goes_on_while_the_controller_is_restarted(cluster: SlurmCluster, tmp_path: Path) -> None:
    output, go = tmp_path / "out", tmp_path / "go"
    job = submit(cluster, f"#!/bin/bash\necho began\nuntil [ -e {go} ]; do sleep 0.1; done\necho ended\n", output)
    wait_until(lambda: output.exists() and output.read_text() == "began\n")
    cluster.restart_controller()
    assert state(cluster, job) == "RUNNING"
    go.touch()
    wait_until(lambda: state(cluster, job) == "COMPLETED")
    assert output.read_text() == "began\nended\n"


def test_slurmrestd_comes_back_at_its_port(cluster: SlurmCluster) -> None:
    cluster.stop_rest()
    with pytest.raises(urllib3.exceptions.NewConnectionError):
        ask(cluster, "GET", "/ping")
    cluster.start_rest()
    assert ask(cluster, "GET", "/ping").status == 200


def test_the_short_partition_runs_nothing_that_may_take_longer(cluster: SlurmCluster, tmp_path: Path) -> None:
    job = submit(cluster, "#!/bin/bash\ntrue\n", tmp_path / "out", partition="short", time_limit=600)
    wait_until(
        lambda: cluster.command("squeue", "--noheader", "--format=%T %r") == "PENDING PartitionTimeLimit\n",
    )
    cluster.command("scancel", str(job))


def test_slurm_says_which_partition_is_its_default(cluster: SlurmCluster) -> None:
    partitions = [parse_partition(found) for found in ask(cluster, "GET", "/partitions").json()["partitions"]]
    assert {partition.name for partition in partitions} == {"trn1", "short"}
    default = default_partition(partitions)
    assert default is not None
    assert (default.name, default.num_nodes) == ("trn1", 3)


def test_a_node_without_power_takes_its_part_of_the_job_along(tmp_path: Path) -> None:
    settings = SlurmSettings(num_nodes=2, node_timeout_seconds=3)
    with SlurmCluster(settings, log_dir=tmp_path / "logs") as cluster:
        job = submit(cluster, SLEEPER, tmp_path / "out", no_requeue=True)
        wait_until(lambda: sleepers(conf_of(cluster)) == {"n0", "n1"})
        cluster.kill_node("n1")
        assert "n1" not in sleepers(conf_of(cluster))
        wait_until(lambda: state(cluster, job) == "NODE_FAIL")
        assert not sleepers(conf_of(cluster))
        cluster.restart_controller()
        cluster.start_node("n1")
        again = submit(cluster, "#!/bin/bash\nsrun true\n", tmp_path / "again")
        wait_until(lambda: state(cluster, again) == "COMPLETED")


def test_two_clusters_do_not_know_of_each_other(cluster: SlurmCluster, tmp_path: Path) -> None:
    with SlurmCluster(SlurmSettings(num_nodes=2), log_dir=tmp_path / "logs") as other:
        job = submit(cluster, SLEEPER, tmp_path / "out")
        wait_until(lambda: len(sleepers(conf_of(cluster))) == 2)
        assert other.command("squeue", "--noheader") == ""
        assert ask(other, "GET", "/jobs", key=cluster.jwt_key).status != 200
    assert state(cluster, job) == "RUNNING"
    cluster.command("scancel", str(job))
    wait_until(lambda: not sleepers(conf_of(cluster)))


def test_a_stop_in_mid_job_leaves_no_process_no_socket_and_no_file(tmp_path: Path) -> None:
    with SlurmCluster(SlurmSettings(num_nodes=2), log_dir=tmp_path / "logs") as cluster:
        conf, folder, port = conf_of(cluster), cluster.folder, urlsplit(cluster.rest_url).port
        submit(cluster, SLEEPER, tmp_path / "out")
        wait_until(lambda: len(sleepers(conf_of(cluster))) == 2)
    assert processes_of(conf) == []
    assert not folder.exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


PARENT = """
import sys, time
from pathlib import Path
from local.slurm.cluster import SlurmCluster
from local.slurm.configuration import SlurmSettings
from tests.waiting import PATIENCE, wait_until
with SlurmCluster(SlurmSettings(num_nodes=2), log_dir=Path(sys.argv[1])) as cluster:
    cluster.command("sbatch", "--nodes=2", f"--chdir={sys.argv[1]}", stdin=sys.argv[2])
    print(cluster.environment["SLURM_CONF"], flush=True)
    time.sleep(600)
"""


def test_a_parent_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path), SLEEPER]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        conf = parent.stdout.readline().strip()
        wait_until(lambda: len(sleepers(conf)) == 2)
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: processes_of(conf) == [])


def test_the_functions_are_told_of_the_twins_slurm(tmp_path: Path) -> None:
    with Twin(
        home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=30, slurm=SlurmSettings(num_nodes=2)
    ) as twin:
        assert twin.slurm is not None and twin.deployment is not None
        function = twin.client("lambda").get_function_configuration(FunctionName=twin.deployment.functions["SubmitJob"])
        told = function["Environment"]["Variables"]
        secret = twin.client("secretsmanager").get_secret_value(SecretId=told["SLURM_KEY_SECRET"])["SecretString"]
        answer = ask(twin.slurm, "GET", "/ping", key=base64.b64decode(secret))
        assert (told["SLURM_API_URL"], answer.status) == (twin.slurm.rest_url, 200)
        assert told["SLURM_USER"] == twin.slurm.user
        assert (Path(told["SLURM_SHARED_FOLDER"]) / "runs").is_dir()
        assert (Path(told["SLURM_ENVIRONMENT"]) / "bin" / "python").exists()
        assert (Path(told["SLURM_PROGRAM_FOLDER"]) / "trainer").is_dir()
        assert json.loads(told["SLURM_PROPERTIES"])["AWS_ENDPOINT_URL"] == twin.aws.endpoint


def test_a_job_keeps_away_from_the_nodes_that_it_excludes(cluster: SlurmCluster, tmp_path: Path) -> None:
    """The form of a gang's job after a failure, at the real slurmctld: it asks for all nodes that are left."""
    nodes = sorted(str(each["name"]) for each in ask(cluster, "GET", "/nodes").json()["nodes"])
    job = Submission(
        name="avoiding",
        script="#!/bin/bash\nsrun hostname > /dev/null\n",
        comment=JobComment(run_id="run-0123456789ab", stage="training", attempt=2, spec_hash="0" * 16),
        num_nodes=len(nodes) - 1,
        time_limit_minutes=5,
        warn_seconds=60,
        exclusive=True,
        avoided_nodes=(nodes[1],),
    )
    answer = ask(cluster, "POST", "/job/submit", submission_form(job, 38))
    assert answer.status == 200, answer.data
    number = int(answer.json()["job_id"])
    shown = subprocess.run(
        ["scontrol", "--oneliner", "show", "job", str(number)],
        env={**os.environ, **cluster.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"ExcNodeList={nodes[1]} " in shown.stdout
    wait_until(lambda: state(cluster, number) == "COMPLETED")
    assert nodes_of(str(ask(cluster, "GET", f"/job/{number}").json()["jobs"][0]["nodes"]), cluster) == {
        *nodes,
    } - {nodes[1]}


def nodes_of(expression: str, cluster: SlurmCluster) -> set[str]:
    """Names in a list in Slurm's notation."""
    done = subprocess.run(
        ["scontrol", "show", "hostnames", expression],
        env={**os.environ, **cluster.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return {*done.stdout.split()}
