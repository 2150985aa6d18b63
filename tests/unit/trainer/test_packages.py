"""A set of packages is complete or absent, whatever is killed; what the accelerator's stack depends on stays."""

from __future__ import annotations

import compileall
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.packages_index import index
from tests.wheels import wheel
from trainer.helpers import share_packages
from trainer.packages import builds, conflicts, image, notes, sets, store, wheels
from trainer.packages.image import Package
from trainer.packages.installation import Requirements
from trainer.packages.pip import Item
from trainer.packages.requirement_lines import Line
from trainer.runtime import environment
from trainer.runtime.errors import CodeInvalid
from trainer.runtime.files import file_sha256


def share(asked: Requirements) -> list[str]:
    arguments = ["--own", str(asked.own), "--store", str(asked.shared)]
    installed = share_packages.main(arguments, environment.read({}))["installed"]
    assert isinstance(installed, list)
    return installed


@pytest.fixture
def fetched(tmp_path: Path) -> Requirements:
    """Wheels that a run has fetched, in its own folder."""
    own = tmp_path / "cache/runs/a/packages"
    files = index(tmp_path / "files", ("one", "1.0", None), ("two", "1.0", None))
    waiting = own / store.WHEELS / ("0" * 24)
    waiting.parent.mkdir(parents=True)
    files.rename(waiting)
    return Requirements(file=tmp_path / "a", root=tmp_path, own=own, shared=tmp_path / "cache/packages")


def shared_of(asked: Requirements) -> Path:
    assert asked.shared is not None
    return asked.shared


def test_the_name_of_a_set_is_what_its_wheels_are_and_not_what_a_run_claims(fetched: Requirements) -> None:
    files = sorted((fetched.own / store.WHEELS / ("0" * 24)).iterdir())
    expected = sets.set_key(map(file_sha256, files))
    assert share(fetched) == [expected]
    assert not (shared_of(fetched) / ("0" * 24)).exists()


def test_a_link_in_place_of_a_wheel_is_not_followed(fetched: Requirements, tmp_path: Path) -> None:
    waiting = fetched.own / store.WHEELS / ("0" * 24)
    secret = tmp_path / "secret.whl"
    wheel(tmp_path, "secret", "1.0")
    (tmp_path / "secret-1.0-py3-none-any.whl").rename(secret)
    (waiting / "three-1.0-py3-none-any.whl").symlink_to(secret)
    (key,) = share(fetched)
    assert not (shared_of(fetched) / key / "secret.py").exists()


@pytest.mark.parametrize("stop_at", [0, 1])
def test_a_killed_installation_is_never_taken_for_complete(
    fetched: Requirements, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    unpack, seen = wheels.unpack, []

    def killed(file: Path, folder: Path) -> None:
        seen.append(file)
        if len(seen) > stop_at:
            os._exit(9)
        unpack(file, folder)

    monkeypatch.setattr(wheels, "unpack", killed)
    _in_a_process_that_is_killed(lambda: store.install_fetched(fetched.own, shared_of(fetched)))
    monkeypatch.setattr(wheels, "unpack", unpack)
    assert not any(sets.is_complete(place) for place in shared_of(fetched).iterdir())
    (key,) = store.install_fetched(fetched.own, shared_of(fetched), stale_seconds=0.1)
    assert {path.name for path in (shared_of(fetched) / key).glob("*.py")} == {"one.py", "two.py"}


@pytest.mark.parametrize("phase", ["compile_dir", "_publish"])
def test_an_installation_that_is_killed_before_its_end_is_made_again(
    fetched: Requirements, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    owner = compileall if phase == "compile_dir" else sets
    with monkeypatch.context() as changed:
        changed.setattr(owner, phase, lambda *_, **__: os._exit(9))
        _in_a_process_that_is_killed(lambda: store.install_fetched(fetched.own, shared_of(fetched)))
    (key,) = store.install_fetched(fetched.own, shared_of(fetched), stale_seconds=0.1)
    assert sets.is_complete(shared_of(fetched) / key)


def _in_a_process_that_is_killed(work: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 9


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_runs_that_start_at_the_same_time_install_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    files = sorted(index(tmp_path / "files", ("one", "1.0", None)).iterdir())
    unpacked: list[Path] = []
    unpack = wheels.unpack
    started = threading.Barrier(runs)

    def counted(file: Path, folder: Path) -> None:
        unpacked.append(file)
        unpack(file, folder)

    def install() -> None:
        started.wait()
        sets.install(files, tmp_path / "store")

    monkeypatch.setattr(wheels, "unpack", counted)
    threads = [threading.Thread(target=install) for _ in range(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(unpacked) == 1
    assert [sets.is_complete(place) for place in (tmp_path / "store").iterdir()] == [True]


DAYS = 24 * 3600.0
NOW = 1_800_000_000.0


def kept_set(folder: Path, name: str, *, idle_days: float, gib: int = 1) -> str:
    place = folder / sets.set_key([name])
    place.mkdir(parents=True)
    marker = place / sets.MARKER
    marker.write_text(json.dumps({"bytes": gib * 2**30, "packages": []}))
    os.utime(marker, (NOW - idle_days * DAYS,) * 2)
    return place.name


def test_sets_that_no_run_uses_are_removed_after_half_a_year(tmp_path: Path) -> None:
    old, new = kept_set(tmp_path / "s", "a", idle_days=181), kept_set(tmp_path / "s", "b", idle_days=179)
    assert store.clean(tmp_path / "s", tmp_path / "runs", now=NOW) == [old]
    assert [path.name for path in (tmp_path / "s").iterdir()] == [new]


def test_above_the_limit_the_least_recently_used_sets_go_first_and_those_in_use_stay(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    first, second, _, used = (
        kept_set(folder, name, idle_days=days, gib=40)
        for name, days in (("a", 100.0), ("b", 50.0), ("c", 6.0), ("d", 120.0))
    )
    own = tmp_path / "runs/long-run/packages"
    own.mkdir(parents=True)
    note = own / "0.json"
    notes.write(note, notes.Note(shared=used))
    os.utime(note, (NOW - 1 * DAYS,) * 2)
    assert store.clean(folder, tmp_path / "runs", now=NOW) == [first, second]


def test_what_killed_processes_and_ended_runs_have_left_is_removed(tmp_path: Path) -> None:
    left, busy = tmp_path / "s/.installing-a", tmp_path / "s/.installing-b"
    own = tmp_path / "runs/old-run/packages"
    for folder, days in ((left, 2.0), (busy, 0.5), (own, 200.0)):
        folder.mkdir(parents=True)
        os.utime(folder, (NOW - days * DAYS,) * 2)
    assert store.clean(tmp_path / "s", tmp_path / "runs", now=NOW) == [left.name, "old-run/packages"]
    assert busy.is_dir()


@given(st.binary(max_size=100) | st.text(max_size=40).map(str.encode))
def test_a_damaged_note_of_another_run_is_no_note(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("note") / "a.json"
    file.write_bytes(content)
    assert notes.read(file) is None


@pytest.mark.parametrize("note", ["{}", '{"shared": "../../x", "own": null}', '{"shared": 1, "own": null}', "[]"])
def test_a_note_names_sets_and_no_other_folders(tmp_path: Path, note: str) -> None:
    (tmp_path / "a.json").write_text(note)
    (tmp_path / "pipe.json").symlink_to("/dev/zero")
    assert notes.read(tmp_path / "a.json") is None
    assert notes.read(tmp_path / "pipe.json") is None


# Wheels.


def packed(folder: Path, **members: str) -> Path:
    file = folder / "a-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as written:
        for name, text in members.items():
            written.writestr(name, text)
    return file


def test_scripts_and_data_of_a_wheel_are_where_the_program_finds_them(tmp_path: Path) -> None:
    members = {
        "a.py": "def main():\n    print('main')\n",
        "a-1.0.dist-info/entry_points.txt": "[console_scripts]\na-tool = a:main\n../bad = a:main\n",
        "a-1.0.data/scripts/tool": "#!python\nprint('tool')\n",
        "a-1.0.data/purelib/b.py": "",
        "a-1.0.data/headers/a.h": "",
    }
    wheels.unpack(packed(tmp_path, **members), tmp_path / "into")
    into = tmp_path / "into"
    assert {path.relative_to(into).as_posix() for path in into.rglob("*") if path.is_file()} == {
        "a.py", "b.py", "bin/a-tool", "bin/tool", "a-1.0.dist-info/entry_points.txt",
    }  # fmt: skip
    path = {"PYTHONPATH": str(into), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for program, printed in (("a-tool", "main\n"), ("tool", "tool\n")):
        done = subprocess.run([into / "bin" / program], env=path, capture_output=True, text=True, check=True)
        assert done.stdout == printed


@pytest.mark.parametrize("name", ["../a", "/etc/a", "a/../../b", "a-1.0.data/scripts/../../../a", "a\\..\\b"])
def test_a_wheel_writes_nothing_outside_of_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(CodeInvalid, match="outside of its folder"):
        wheels.unpack(packed(tmp_path, **{name: ""}), tmp_path / "into")


@given(st.binary(max_size=200))
def test_whatever_is_not_a_wheel_is_refused_by_name(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("wheel") / "a.whl"
    file.write_bytes(content)
    with pytest.raises(CodeInvalid, match=r"a.whl is not a wheel"):
        wheels.unpack(file, file.parent / "into")


# The image's stack.


def stack_of(**packages: tuple[str, tuple[str, ...]]) -> dict[str, Package]:
    named = {name.replace("_", "-"): each for name, each in packages.items()}
    return {name: Package(name=name, version=version, requires=needs) for name, (version, needs) in named.items()}


NEURON = stack_of(
    torch=("2.9.0", ("sympy>=1.13", "nvidia-cudnn-cu12 ; extra == 'cuda'")),
    torch_neuronx=("2.9.0.1", ("torch==2.9.*", "torch-xla==2.9.0", "numpy<2 (>=1.22) ; python_version > '3'")),
    torch_xla=("2.9.0", ()),
    neuronx_cc=("2.21", ("numpy[x]<=1.26.4,>=1.22.2", "scipy (<=1.12) ; sys_platform == 'linux'")),
    neuronx_distributed=("0.15", ()),
    numpy=("1.26.4", ()),
    scipy=("1.11.2", ()),
    transformers=("4.57", ("numpy", "torch")),
)


def test_the_accelerators_stack_is_protected_and_other_packages_are_not() -> None:
    assert set(image.protected(NEURON)) == {
        "torch", "torch-neuronx", "torch-xla", "neuronx-cc", "neuronx-distributed", "numpy",
    }  # fmt: skip


def test_what_the_stack_requires_is_a_constraint_for_packages_that_may_change() -> None:
    lines = [each.line for each in image.constraints(image.protected(NEURON))]
    assert {"torch==2.9.0", "numpy==1.26.4", "scipy<=1.12 ; sys_platform == 'linux'", "sympy>=1.13"} <= set(lines)
    assert not any("cudnn" in line or "scipy==" in line for line in lines)


def test_companions_of_a_replaced_package_go_with_it_and_the_core_stays() -> None:
    cuda = stack_of(
        torch=("2.9.0", ("nvidia-nccl-cu12==2.27", "triton==3.5.0")),
        nvidia_nccl_cu12=("2.27", ()),
        triton=("3.5.0", ()),
        numpy=("2.0", ()),
        jax=("0.7", ("numpy>=2", "jaxlib==0.7")),
        jaxlib=("0.7", ()),
    )
    assert set(image.protected(cuda, replaced=("torch",))) == {"numpy", "jax", "jaxlib"}
    assert set(image.protected(cuda, replaced=("jax",))) == {"torch", "nvidia-nccl-cu12", "triton", "numpy", "jaxlib"}


def item(name: str, version: str) -> Item:
    return Item(name=name, version=version, sha256="0" * 64, is_wheel=True, url="", requested=True)


def test_libraries_of_another_build_than_the_images_pytorch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_platform", lambda: "linux-x86_64")
    cpu, cuda = stack_of(torch=("2.13.0+cpu", ())), stack_of(torch=("2.13.0", ()))
    vision = [item("torchvision", "0.28.0"), item("plain", "1.0")]
    with pytest.raises(CodeInvalid, match=r"torchvision 0.28.0 .*CUDA.*2\.13\.0\+cpu"):
        builds.require_matching(vision, cpu)
    builds.require_matching(vision, cuda)
    builds.require_matching([item("torchvision", "0.28.0+cpu")], cpu)
    assert [line.text for line in builds.lines_with_builds((), vision[:1])] == [
        "--find-links https://download.pytorch.org/whl/cpu/torchvision/"
    ]
    closed = Line(text="--no-index", file="a", number=1, is_option=True)
    assert builds.lines_with_builds((closed,), vision) == [closed]


@given(st.text(max_size=200), st.lists(st.text(max_size=40), max_size=3))
def test_whatever_pip_prints_a_sentence_is_made_of_it(output: str, texts: list[str]) -> None:
    lines = [Line(text=text, file="a.txt", number=number) for number, text in enumerate(texts, start=1)]
    text = f"ERROR: Cannot install -r x/required.txt (line 1)\n\nThe conflict is caused by:\n    {output}\n"
    limits = image.constraints(image.protected(NEURON))
    for each in conflicts.with_the_image(text, lines, image=NEURON, limits=limits):
        assert each.sentence
    assert conflicts.other(text, lines)
