"""Code is packed as Git would see it, named by its content, and refused in one sentence before anything starts."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from tests.fakes.runs import SPEC, spec_with
from trainflow.client import code
from trainflow.client.code import PackedCode, pack
from trainflow.errors import InvalidRunSpec
from trainflow.spec.code import packed_sha256
from trainflow.spec.run_spec import RunSpec, parse_run_spec


def spec(**workload: Any) -> RunSpec:
    return parse_run_spec(spec_with(workload={"image": "i", "script": "train.py", "code": ".", **workload}))


def packed(folder: Path, **workload: Any) -> PackedCode:
    found = pack(spec(**workload).workload, beside=folder)
    assert found is not None
    return found


def members(found: PackedCode) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(found.content)) as archive:
        return {member.name: member for member in archive}


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"print({name!r})")


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    write(folder, "train.py", "model/net.py", "model/__init__.py")
    return folder


def test_the_same_files_give_the_same_digest_whatever_their_times_are(project: Path, tmp_path: Path) -> None:
    first = packed(project)
    os.utime(project / "train.py", (0, 0))
    (project / "__pycache__").mkdir()
    (project / "__pycache__/train.pyc").touch()
    assert packed(project) == first
    assert packed(tmp_path, code="./project") == first
    (project / "train.py").write_text("print('trains better')")
    assert packed(project).sha256 != first.sha256


def test_in_a_repository_ignored_and_deleted_files_are_left_out_and_new_ones_are_not(project: Path) -> None:
    git(project, "init", "--quiet")
    write(project, "deleted", "kept")
    git(project, "add", "--all")
    (project / "deleted").unlink()
    (project / ".gitignore").write_text("*.pt\n")
    write(project, "new.py")
    (project / "weights.pt").write_text("large")
    names = {".gitignore", "model/__init__.py", "model/net.py", "new.py", "kept", "train.py"}
    assert set(members(packed(project))) == names
    assert set(members(packed(project / "model", script="net.py"))) == {"__init__.py", "net.py"}


def test_records_of_earlier_runs_are_not_packed(project: Path) -> None:
    write(project, "out/run.json", "venv/lib.py")
    found = pack(spec().workload, beside=project, leave_out=[project / "out"])
    assert found is not None
    assert not [name for name in members(found) if name.startswith(("out", "venv"))]


def test_members_are_plain_files_of_nobody_and_programs_stay_executable(project: Path) -> None:
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o777)
    (project / "link.py").symlink_to("model/net.py")
    found = members(packed(project))
    assert {name: (m.mode, m.uid, m.uname, m.mtime) for name, m in found.items() if m.isfile()} == {
        name: (0o755 if name == "run.sh" else 0o644, 0, "", 0)
        for name in ("model/__init__.py", "model/net.py", "run.sh", "train.py")
    }
    assert found["link.py"].linkname == "model/net.py"


@pytest.mark.parametrize("target", ["/etc/passwd", "../elsewhere"])
def test_a_link_that_leaves_the_folder_is_refused(project: Path, target: str) -> None:
    (project / "link").symlink_to(target)
    with pytest.raises(InvalidRunSpec, match=rf"workload\.code: 'link'.*leaves.*{target}"):
        packed(project)


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("sub/a", "sub/b", "sub/c")])
def test_links_that_lead_back_to_themselves_are_refused_in_one_sentence(project: Path, names: tuple[str, ...]) -> None:
    for name, target in zip(names, (*names[1:], names[0]), strict=True):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).symlink_to(Path(target).name)
    with pytest.raises(InvalidRunSpec, match=r"^workload.code: '(sub/)?a'.*leads back"):
        packed(project)


def test_too_large_a_folder_names_its_largest_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "MAX_MIB", 1)
    (project / "weights.bin").write_bytes(bytes(2 << 20))
    with pytest.raises(InvalidRunSpec, match=r"2 MiB.*at most 1 .*weights\.bin"):
        packed(project)


@pytest.mark.parametrize(
    ("workload", "sentence"),
    [
        ({"code": "./nowhere"}, r"workload.code: there is no folder './nowhere' beside the spec"),
        (
            {"script": "tarin.py"},
            r"workload.script: there is no file 'tarin.py' among the 3 files of",
        ),
        ({"requirements": "absent.txt"}, r"workload.requirements: there is no file 'absent.txt' in workload.code"),
        ({"requirements": "a.txt", "code": None}, r"requirements is a file inside code, but code is missing"),
        (
            {"script": None, "module": "model.tarin"},
            r"workload.module: there is no module 'model.tarin' in",
        ),
    ],
)
def test_what_is_not_there_is_one_sentence(project: Path, workload: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRunSpec, match=sentence):
        packed(project, **workload)


def test_a_module_may_be_of_the_code_or_installed(project: Path) -> None:
    assert packed(project, script=None, module="model.net") == packed(project, script=None, module="torch.elsewhere")


@pytest.mark.parametrize(
    "value",
    ["http://host/repository.git@" + "0" * 40, "https://host/repository.git@main", "s3://bucket/code.tar.gz", ""],
)
def test_other_forms_of_code_are_refused(value: str) -> None:
    with pytest.raises(InvalidRunSpec, match=r"workload.code"):
        spec(code=value)


def test_a_commit_is_fetched_and_packed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(project, "init", "--quiet")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "First")
    commit, first = git(project, "rev-parse", "HEAD"), packed(project)
    write(project, "later.py")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{project}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://git.example/project.git")
    assert packed(project.parent, code=f"https://git.example/project.git@{commit}") == first
    with pytest.raises(InvalidRunSpec, match=r"git\.example/.*@0+'.*fetched.*\(.*0000"):
        packed(project.parent, code=f"https://git.example/project.git@{'0' * 40}")


def test_the_commit_of_the_code_is_known_and_whether_files_differ_from_it(project: Path) -> None:
    assert packed(project).commit is None
    git(project, "init", "--quiet")
    assert packed(project).commit is None
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message", "First")
    commit = git(project, "rev-parse", "HEAD")
    clean = packed(project)
    assert clean.commit == commit
    assert clean.named_in(spec(), bucket="b").workload.code_commit == commit
    write(project, "later.py")
    assert packed(project).commit == f"{commit}-dirty"
    assert parse_run_spec(clean.named_in(spec(), bucket="b").model_dump(mode="json")).workload.code_commit == commit


def test_packed_code_is_uploaded_once_and_named_by_its_digest(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = packed(project)
    named = found.named_in(spec(), bucket="artifacts")
    assert named.workload.code == f"s3://artifacts/code/{found.sha256}.tar.gz"
    assert packed_sha256(named.workload.code) == found.sha256
    assert pack(named.workload, beside=project) is None
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="artifacts")
        s3.put_bucket_versioning(Bucket="artifacts", VersioningConfiguration={"Status": "Enabled"})
        for _ in range(2):
            found.upload(s3, bucket="artifacts")
        (version,) = s3.list_object_versions(Bucket="artifacts")["Versions"]
        assert version["Key"] == f"code/{found.sha256}.tar.gz"


def test_a_spec_without_code_packs_nothing(tmp_path: Path) -> None:
    assert pack(parse_run_spec(SPEC).workload, beside=tmp_path) is None


def test_files_that_commands_write_while_they_run_do_not_change_the_digest(project: Path) -> None:
    before = packed(project).sha256

    write(project, "nohup.out", "train.log", "deep/er.log")

    assert packed(project).sha256 == before
    write(project, "catalog.py")
    assert packed(project).sha256 != before


def test_the_file_that_this_commands_output_goes_to_is_not_packed(project: Path) -> None:
    before = packed(project).sha256
    kept = os.dup(1)
    try:
        with (project / "grid.txt").open("w") as output:
            os.dup2(output.fileno(), 1)
            assert packed(project).sha256 == before
    finally:
        os.dup2(kept, 1)
        os.close(kept)
