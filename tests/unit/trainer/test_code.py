"""Packed code is checked against its digest, unpacked inside its folder, and is where the program starts."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.plans import supervised
from tests.unit.trainer.conftest import BUCKET
from tests.wheels import wheel
from trainer.helpers import install
from trainer.packages import installation, sets
from trainer.packages.installation import Requirements
from trainer.packages.sets import set_key
from trainer.runtime import environment
from trainer.runtime.errors import CodeInvalid, ConfigInvalid, StorageFailed
from trainer.runtime.files import file_sha256
from trainer.steps import code
from trainflow.protocol.plan import Code


def archive(**members: tarfile.TarInfo | bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as written:
        for name, member in members.items():
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(name)
            content = member if isinstance(member, bytes) else b""
            info.size = len(content)
            written.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def uploaded(s3: Any, content: bytes, *, digest: str | None = None) -> str:
    key = f"code/{digest or hashlib.sha256(content).hexdigest()}.tar.gz"
    s3.put_object(Bucket=BUCKET, Key=key, Body=content)
    return f"s3://{BUCKET}/{key}"


def link(name: str, target: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    return member


def test_an_init_container_installs_the_code_beside_the_helpers(s3: Any, tmp_path: Path) -> None:
    url = uploaded(s3, archive(**{"train.py": b"print(1)", "model/net.py": b"", "same": link("same", "train.py")}))
    into, workspace = tmp_path / "helpers", tmp_path / "workspace"
    arguments = ["--into", str(into), "--code", url, "--workspace", str(workspace)]
    for _ in range(2):
        install.main(arguments, environment.read({}))
    assert (workspace / "train.py").read_text() == (workspace / "same").read_text() == "print(1)"
    assert (into / "trainer/steps/workspace.py").is_file()


def test_another_archive_than_the_url_names_is_not_unpacked(s3: Any, tmp_path: Path) -> None:
    url = uploaded(s3, archive(**{"train.py": b"print('another')"}), digest="0" * 64)
    with pytest.raises(CodeInvalid, match=r"workload\.code: .*SHA-256 [0-9a-f]{64}"):
        code.fetch(url, tmp_path / "workspace")
    assert not (tmp_path / "workspace").exists()


@pytest.mark.parametrize("member", [link("a", "/etc/passwd"), link("a", "../b"), tarfile.TarInfo("../a")])
def test_members_that_leave_the_folder_are_refused(s3: Any, tmp_path: Path, member: tarfile.TarInfo) -> None:
    with pytest.raises(CodeInvalid, match=r"workload.code: The member"):
        code.fetch(uploaded(s3, archive(member=member)), tmp_path / "workspace")


def test_code_that_is_gone_or_no_archive_is_named(s3: Any, tmp_path: Path) -> None:
    with pytest.raises(CodeInvalid, match=r"^workload.code: .*0000\.tar\.gz .*exist"):
        code.fetch(f"s3://{BUCKET}/code/{'0' * 64}.tar.gz", tmp_path)
    with pytest.raises(CodeInvalid, match=r"is not an archive"):
        code.fetch(uploaded(s3, b"text"), tmp_path)
    with pytest.raises(ConfigInvalid, match=r"has to end in the archive's SHA-256"):
        code.fetch(f"s3://{BUCKET}/code.tar.gz", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(StorageFailed, match=r"cannot be unpacked to"):
        code.fetch(uploaded(s3, archive(a=b"")), tmp_path / "file")


def test_the_program_starts_in_its_code_which_comes_first_on_its_path(tmp_path: Path) -> None:
    (tmp_path / "code/scripts").mkdir(parents=True)
    (tmp_path / "code/model.py").write_text("layers = 2\n")
    (tmp_path / "code/scripts/train.py").write_text("import os, model; print(os.getcwd(), model.layers)\n")
    (tmp_path / "image").mkdir()
    (tmp_path / "image/model.py").write_text("layers = 1\n")
    repository = str(Path(code.__file__).parents[2])
    path = os.pathsep.join([str(tmp_path / "image"), repository])
    done = subprocess.run(
        supervised(sys.executable, "scripts/train.py", code=Code(folder="code")),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'code'} 2\n"), done.stderr


@pytest.fixture
def required(tmp_path: Path) -> Path:
    """A requirements file beside the wheels that it names, so that no network is needed."""
    project = tmp_path / "code"
    (project / "wheels").mkdir(parents=True)
    wheel(project / "wheels", "demanded", "1.0", content="version = 'required'\n")
    file = project / "requirements.txt"
    file.write_text("--no-index\n--find-links wheels\ndemanded==1.0\n")
    return file


def required_by(file: Path, folder: Path) -> Requirements:
    return Requirements(file=file, root=file.parent, own=folder / "packages")


def test_required_packages_are_installed_once_and_come_before_the_images(required: Path, tmp_path: Path) -> None:
    (tmp_path / "image").mkdir()
    (tmp_path / "image/demanded.py").write_text("version = 'of the image'\n")
    repository = str(Path(code.__file__).parents[2])
    step = Code(folder="code", requirements="requirements.txt", packages=str(tmp_path / "packages"))
    printing = [sys.executable, "-c", "import demanded; print(demanded.version)"]
    outputs = [
        subprocess.run(
            supervised(*printing, code=step),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "image"), repository])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert ["Successfully installed demanded-1.0" in output for output in outputs] == [True, False]
    assert outputs[1] == "required\n"
    (place,) = (path for path in (tmp_path / "packages").iterdir() if path.is_dir())
    assert place.name == set_key([file_sha256(required.parent / "wheels/demanded-1.0-py3-none-any.whl")])


def test_a_package_that_cannot_be_installed_is_told_in_pips_own_words(required: Path, tmp_path: Path) -> None:
    required.write_text(required.read_text() + "absent==2.0\n")
    sentence = r"workload.requirements: requirements.txt cannot be installed: .*No matching distribution.*absent==2.0"
    with pytest.raises(CodeInvalid, match=sentence):
        installation.folders(required_by(required, tmp_path))
    assert list((tmp_path / "packages").iterdir()) == []


def test_packages_of_another_command_that_was_faster_are_used(
    required: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel_of_it = required.parent / "wheels/demanded-1.0-py3-none-any.whl"
    place = tmp_path / "packages" / set_key([file_sha256(wheel_of_it)])

    def overtaken(_copies: object, _made: Path) -> None:
        place.mkdir()
        (place / "first").touch()
        (place / sets.MARKER).write_text("{}")

    monkeypatch.setattr(sets, "_unpack", overtaken)
    assert installation.folders(required_by(required, tmp_path)) == (place,)
    left = [path for path in (tmp_path / "packages").iterdir() if path.is_dir()]
    assert left == [place]
    assert (place / "first").exists()


def test_requirements_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(CodeInvalid, match=r"requirements: .*/absent\.txt .*read"):
        installation.folders(required_by(tmp_path / "absent.txt", tmp_path))
