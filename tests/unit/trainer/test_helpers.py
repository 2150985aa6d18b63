"""The helpers run in any image with Python: from a folder, beside no package of ours and none of others."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.fakes.plans import words_of
from trainer.helpers import install, modules, start
from trainer.images import smoke
from trainer.runtime import environment
from trainer.runtime.errors import StorageFailed
from trainflow.protocol.plan import CompileCache, LockedMemory, Secrets, SecretSource


def pythons() -> Iterator[str]:
    """This Python, and the oldest that an image may have, where this machine has it."""
    yield sys.executable
    oldest = ".".join(map(str, start.OLDEST))
    for path in (shutil.which(f"python{oldest}"), *Path.home().glob(f".pyenv/versions/{oldest}.*/bin/python")):
        if path and subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0:
            yield str(path)
            return


@pytest.fixture(scope="module")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an init container leaves."""
    folder = tmp_path_factory.mktemp("trainflow") / "helpers"
    install.main(["--into", str(folder), "--s3_client", "true", "--secrets_client", "true"], environment.read({}))
    return folder


def test_the_runs_folders_are_made_before_all_else(tmp_path: Path) -> None:
    folders = [tmp_path / "runs/new", tmp_path / "cache/runs/new"]
    for _repeated in range(2):
        install.main(["--into", str(tmp_path / "helpers"), "--folders", *map(str, folders)], environment.read({}))
        assert all(folder.is_dir() for folder in folders)
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailed, match="cannot be made"):
        install.main(["--into", str(tmp_path / "x"), "--folders", f"{tmp_path}/file/run"], environment.read({}))
    assert not (tmp_path / "x").exists()


def started(folder: Path, *argv: str, python: str = sys.executable, cwd: Path, **environ: str) -> Any:
    """A helper in an image that has nothing installed: `-S` leaves out the packages of this machine."""
    return subprocess.run(
        [python, "-S", str(folder), *argv],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(params=pythons(), ids=lambda path: Path(path).parts[-3])
def python(request: pytest.FixtureRequest) -> str:
    path: str = request.param
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The working directory of an image whose own package has the name of ours."""
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/__init__.py").touch()
    (tmp_path / "trainer/train.py").write_text("import sys, trainer; print(sys.path[0], trainer.__path__[0])\n")
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:], sys.path[0])\n")
    return tmp_path


def test_the_probe_examines_the_images_program_and_not_the_helpers(helpers: Path, image: Path, python: str) -> None:
    ours = ("trainer.pretrain", "trainer.probe")
    for module in ("trainer.train", "train", *ours):
        done = started(helpers, "probe", "--module", module, "--", "--any", "1", python=python, cwd=image)
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
        missing = f"there is no module '{module}' in the image." if module in ours else None
        assert (seen["program"], seen["arguments"], seen["checkpoint_bytes"]) == (missing, None, None)


def test_the_program_behind_the_helpers_has_the_path_of_its_image(helpers: Path, image: Path, python: str) -> None:
    cache, scratch = image / "cache", image / "scratch"
    cache.mkdir()
    scratch.mkdir()
    (cache / "_READY").write_text('{"files": {}}')
    steps = {"locked_memory": LockedMemory(mebibytes=1), "compile_cache": CompileCache(source=str(cache))}
    _, *words = words_of(python, "-S", "-m", "trainer.train", **steps)
    done = started(helpers, "supervisor", *words, python=python, cwd=image, TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{image} {image / 'trainer'}"


def test_precompiling_reads_what_the_program_prints(helpers: Path, image: Path, python: str) -> None:
    program = "print('Total graphs: 3'); print('Total successful compilations: 3')"
    result = image / "result"
    own = {"TRAINFLOW_RESULT_FILE": str(result), "TRAINFLOW_CACHE_DIR": str(image / "cache")}
    done = started(helpers, "precompile", "--", python, "-c", program, python=python, cwd=image, **own)
    assert done.returncode == 0, done.stderr
    assert json.loads(result.read_text()) == {"result": {"graphs": 3, "succeeded": 3}}


@pytest.fixture
def moto_s3() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def pod_identity(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables of EKS Pod Identity, with an agent that gives credentials for the token in the file."""

    class Agent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Authorization"] == "the pod's token"
            credentials = {
                "AccessKeyId": "ASIAEXAMPLE",
                "SecretAccessKey": "secret",
                "Token": "session",
                "Expiration": "2099-01-01T00:00:00Z",
            }
            self.send_response(200 if known else 403)
            self.end_headers()
            self.wfile.write(json.dumps(credentials if known else {}).encode())

        def log_message(self, *_: object) -> None: ...

    (tmp_path / "token").write_text("the pod's token")
    with HTTPServer(("127.0.0.1", 0), Agent) as agent:
        threading.Thread(target=agent.serve_forever, daemon=True).start()
        yield {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{agent.server_port}/v1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_REGION": "us-west-2",
            "AWS_DEFAULT_REGION": "us-west-2",
        }
        agent.shutdown()


@pytest.mark.lengthy
def test_rank_0_announces_its_pod_with_the_installed_s3_client_and_the_pods_identity(
    helpers: Path, image: Path, python: str, moto_s3: str, pod_identity: dict[str, str]
) -> None:
    s3 = boto3.client(
        "s3",
        endpoint_url=moto_s3,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    s3.create_bucket(Bucket="artifacts")
    place = {"TRAINFLOW_RANK0_URL": "s3://artifacts/runs/a/rank0/job", "TRAINFLOW_POD_NAME": "job-worker-1"}
    given = {**place, **pod_identity, "AWS_ENDPOINT_URL": moto_s3, "RANK": "0"}
    done = started(helpers, "announce", "train.py", "--lr", "1", python=python, cwd=image, **given)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"['--lr', '1'] {image}\n"
    assert s3.get_object(Bucket="artifacts", Key="runs/a/rank0/job")["Body"].read() == b"job-worker-1"
    Path(pod_identity["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).write_text("another's token")
    refused = started(helpers, "announce", "train.py", python=python, cwd=image, **given)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "StorageFailed: s3://artifacts/runs/a/rank0/job cannot be written" in refused.stderr


@pytest.mark.lengthy
def test_secrets_are_read_with_the_pods_identity_and_only_the_program_has_them(
    helpers: Path, image: Path, python: str, moto_s3: str, pod_identity: dict[str, str]
) -> None:
    client = boto3.client(
        "secretsmanager",
        endpoint_url=moto_s3,
        region_name="us-west-2",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    name = f"hub/{python}"  # moto keeps one account for all of its servers
    client.create_secret(Name=name, SecretString='{"token": "hf_4711"}')
    program = "import os, sys; print(os.environ['HF_TOKEN'] == 'hf_4711', 'boto3' in sys.modules, sys.path[1:2])"
    secrets = Secrets(variables={"HF_TOKEN": SecretSource(secret=name, key="token")})
    _, *words = words_of(python, "-S", "-c", program, secrets=secrets)
    done = started(helpers, "supervisor", *words, python=python, cwd=image, AWS_ENDPOINT_URL=moto_s3, **pod_identity)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True False ") and str(helpers) not in done.stdout
    Path(pod_identity["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).write_text("another's token")
    refused = started(helpers, "supervisor", *words, python=python, cwd=image, AWS_ENDPOINT_URL=moto_s3, **pod_identity)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"SecretUnavailable: workload.secrets.HF_TOKEN: the secret '{name}' cannot be read" in refused.stderr


def test_the_list_of_the_helpers_modules_is_the_one_that_the_sources_give() -> None:
    assert modules.listed() == modules.found(), "python -m tests.goldens writes it anew"


def test_helpers_that_announce_nothing_are_small_and_import_the_standard_library_alone(tmp_path: Path) -> None:
    result = install.main(["--into", str(tmp_path / "helpers")], environment.read({}))
    sources = list((tmp_path / "helpers").rglob("*.py"))
    assert result["helpers_bytes"] == sum(path.stat().st_size for path in sources)  # boto3 has more than 10 MB
    packages = {path.relative_to(tmp_path / "helpers").parts[:2] for path in sources}
    assert {parts[0] for parts in packages} == {"__main__.py", "trainer", "trainflow"}, "our programs only"
    assert {parts[1] for parts in packages if parts[0] == "trainflow"} == {"__main__.py", "protocol"}
    others = [f"trainer.{name}" for name in start.PROGRAMS if name != "announce"]
    without = (*modules.NOT_IN_PODS, "trainer.steps.secrets")
    assert smoke.foreign_modules(others, without=without) == frozenset()


def test_an_installation_is_repeated_when_a_container_is(tmp_path: Path) -> None:
    for _ in range(2):
        install.main(["--into", str(tmp_path / "helpers"), "--s3_client", "true"], environment.read({}))
    assert (tmp_path / "helpers/boto3/__init__.py").is_file()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(install.StorageFailed, match=r"--into .*file/helpers cannot be written"):
        install.main(["--into", str(tmp_path / "file/helpers")], environment.read({}))


def test_the_helpers_are_written_for_the_oldest_python_that_they_name() -> None:
    for path in install.helper_files():
        ast.parse(path.read_text(), feature_version=start.OLDEST)


def test_an_older_python_gets_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert start.main(["probe"], (3, 9)) == 2
    assert capsys.readouterr().err == (
        "The image's `python` is 3.9, but Trainflow's helpers need Python 3.10 or newer; choose an image with a "
        "newer one.\n"
    )


def test_old_pythons_can_read_what_refuses_them() -> None:
    source = Path(start.__file__).read_text()
    assert "__future__" not in source
    ast.parse(source, feature_version=(3, 6))


def test_an_unknown_helper_is_refused(helpers: Path, image: Path) -> None:
    done = started(helpers, "pretrain", cwd=image)
    assert (done.returncode, done.stderr) == (
        2,
        "Name one of Trainflow's helpers: announce, limit_steps, precompile, probe, supervisor.\n",
    )
