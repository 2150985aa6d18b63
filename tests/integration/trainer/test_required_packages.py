"""Requirements never replace what the image's stack depends on, and equal packages are installed once for all runs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages_index import index, project
from tests.wheels import wheel
from trainer.helpers import share_packages
from trainer.packages import installation, pip, sets, store
from trainer.packages.installation import Requirements
from trainer.runtime import environment
from trainer.runtime.errors import CodeInvalid

TORCH = importlib.metadata.version("torch")
NUMPY = importlib.metadata.version("numpy")

PACKAGES = [
    ("torch", "99.0", None),
    ("numpy", "1.0", None),
    ("sympy", "0.1", None),
    ("vision", "1.0", "torch>=99"),
    ("middle", "1.0", "vision==1.0"),
    ("deep", "1.0", "middle"),
    ("old-arrays", "1.0", "numpy<2"),
    ("fine", "1.0", "torch>=1"),
    ("fine", "0.9", None),
    ("plain", "1.0", None),
]


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)  # indexes and constraints of this machine
    folder = tmp_path / "code"
    index(folder / "index", *((name.replace("-", "_"), version, requires) for name, version, requires in PACKAGES))
    return folder


def required(code: Path, text: str, *, run: str = "a", replaced: tuple[str, ...] = ()) -> Requirements:
    file = code / "requirements.txt"
    file.write_text(f"--no-index\n--find-links index\n{text}\n")
    cache = code.parent / "cache"
    return Requirements(
        file=file,
        root=code,
        own=cache / "runs" / run / "packages",
        shared=cache / "packages",
        replaced=replaced,
    )


def prepared(asked: Requirements) -> tuple[Path, ...]:
    """What the containers of a preflight's pod do one after the other."""
    installation.fetch(asked)
    share(asked)
    return installation.folders(asked)


def share(asked: Requirements) -> list[str]:
    arguments = ["--own", str(asked.own), "--store", str(asked.shared)]
    installed = share_packages.main(arguments, environment.read({}))["installed"]
    assert isinstance(installed, list)
    return installed


@pytest.mark.parametrize(
    ("text", "conflicts_named"),
    [
        ("torch>=99", [rf"line 3 asks for torch>=99, but the image has torch {re.escape(TORCH)}"]),
        ("plain\nvision", [rf"line 4: vision 1.0 needs torch>=99, but the image has torch {re.escape(TORCH)}"]),
        ("deep", [r"line 3: vision 1.0 needs torch>=99, but the image has torch"]),
        ("sympy<1", [r"line 3 asks for sympy<1, but torch .* of the image needs sympy>=1.13.3 \(the image has sympy"]),
        ("Old_Arrays", [rf"line 3: old-arrays 1.0 needs numpy<2, but the image has numpy {NUMPY}"]),
        ("numpy==1.0\nvision", [r"line 3 asks for numpy==1.0", r"line 4: vision 1.0 needs torch>=99"]),
        ("numpy==1.0\nplain\nvision\nold-arrays", [r"line 3 asks", r"line 5: vision", r"line 6: old-arrays"]),
        (
            "torch==99.0\nnumpy==1.0\nvision\nold-arrays\nsympy<1",
            [r"line 3 asks", r"line 4 asks", r"line 5: vision", r"line 6: old-arrays", r"line 7 asks for sympy<1"],
        ),
    ],
)
def test_each_conflict_with_the_image_is_named_with_line_and_both_versions(
    code: Path, text: str, conflicts_named: list[str]
) -> None:
    with pytest.raises(CodeInvalid) as refused:
        prepared(required(code, text))
    sentence = str(refused.value)
    assert sentence.startswith("workload.requirements: requirements.txt line ")
    for each in conflicts_named:
        assert re.search(each, sentence), sentence
    assert sentence.count(", but ") == len(conflicts_named)
    assert "name them in workload.replace_packages: [" in sentence


def test_an_older_version_that_fits_the_image_is_chosen(code: Path) -> None:
    index(code / "index", ("fine", "2.0", "torch>=99"))
    (place,) = prepared(required(code, "fine"))
    assert (place / "fine.py").read_text() == "version = '1.0'\n"


def test_what_the_image_has_is_not_installed_again(code: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert prepared(required(code, "torch>=2\nnumpy\nPyYAML")) == ()
    assert "Packages of requirements.txt: the image has all of them." in capfd.readouterr().out


def test_a_package_that_the_spec_names_is_replaced(code: Path) -> None:
    (place,) = prepared(required(code, "vision", replaced=("Torch",)))
    assert {path.name for path in place.glob("*.py")} == {"torch.py", "vision.py"}


def test_a_yanked_or_absent_version_is_told_in_pips_own_words(code: Path) -> None:
    with pytest.raises(CodeInvalid, match=r"installed: .*No matching .*plain==7"):
        prepared(required(code, "plain==7"))


@pytest.mark.parametrize(("asked", "version"), [("late", "1.0"), ("late==2.0", "2.0"), ("late>=1.5,<3", None)])
def test_a_yanked_version_is_installed_only_if_it_is_pinned(code: Path, asked: str, version: str | None) -> None:
    index(code / "index/late", ("late", "1.0", None), ("late", "2.0", None))
    names = (path.name for path in sorted((code / "index/late").glob("*.whl")))
    links = (f'<a href="{name}"{" data-yanked=broken" if "2.0" in name else ""}>{name}</a>' for name in names)
    (code / "index/late/page.html").write_text(f"<!DOCTYPE html><body>{''.join(links)}</body>")
    text = f"--find-links index/late/page.html\n{asked}"
    if version is None:
        with pytest.raises(CodeInvalid, match="No matching distribution found for late"):
            prepared(required(code, text))
        return
    (place,) = prepared(required(code, text))
    assert (place / "late.py").read_text() == f"version = '{version}'\n"


def test_a_package_of_a_git_repository_is_installed_at_its_tag(code: Path) -> None:
    repository = project(code.parent / "repository", "of_git")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(repository)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "a"], ["tag", "v1"]):
        subprocess.run([*git, *words], check=True)
    asked = required(code, f"of_git @ git+file://localhost{repository}@v1")
    assert any((place / "of_git").exists() or (place / "of_git.py").exists() for place in prepared(asked))


def test_requirements_that_exclude_each_other_are_told_with_the_packages(code: Path) -> None:
    index(code / "index", ("needs_old", "1.0", "fine<1"))
    with pytest.raises(CodeInvalid, match=r"needs.old 1.0 depends on fine<1"):
        prepared(required(code, "fine==1.0\nneeds_old"))


def test_a_second_run_installs_nothing_and_has_the_same_folder(code: Path) -> None:
    first = required(code, "plain\nfine")
    installation.fetch(first)
    assert len(share(first)) == 1
    places = installation.folders(first)
    second = required(code, "# another file\nfine\nplain", run="b")
    installation.fetch(second)
    assert not (second.own / store.WHEELS).exists()
    assert share(second) == []
    assert installation.folders(second) == places
    assert json.loads((places[0] / sets.MARKER).read_text())["packages"] == ["fine-1.0", "plain-1.0"]


def test_a_restart_does_not_resolve_again(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = required(code, "plain")
    places = prepared(asked)
    monkeypatch.setattr(pip, "resolve", pytest.fail)
    assert installation.folders(asked) == places


def test_shared_packages_that_were_removed_are_installed_for_the_run(code: Path) -> None:
    asked = required(code, "plain")
    (place,) = prepared(asked)
    sets.remove(place)
    (own,) = installation.folders(asked)
    assert own == asked.own / place.name
    assert (own / "plain.py").is_file()


@pytest.mark.parametrize("text", ["-e .", ".", "./", "-e .[train]", "--editable=."])
def test_a_project_of_the_code_is_importable_and_the_runs_own(code: Path, text: str) -> None:
    project(code, "mine", requires="Provides-Extra: train\nRequires-Dist: plain; extra == 'train'\n")
    asked = required(code, f"{text}\n" if "train" in text else f"{text}\nplain")
    folders = prepared(asked)
    assert [folder.parent for folder in folders] == [asked.own, asked.shared]
    path = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, "-c", "import mine, plain; print(mine.built, plain.version)"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=code.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "True 1.0\n", done.stderr


def test_a_wheel_of_the_code_is_installed_for_the_run(code: Path) -> None:
    (code / "wheels").mkdir()
    wheel(code / "wheels", "local", "3.0", content="there = True\n")
    asked = required(code, "wheels/local-3.0-py3-none-any.whl")
    (place,) = prepared(asked)
    assert place.parent == asked.own
    assert (place / "local.py").is_file()


def test_hashes_are_checked(code: Path) -> None:
    line = wheel(code / "index", "hashed", "1.0").strip()
    (place,) = prepared(required(code, line))
    assert (place / "hashed.py").is_file()
    with pytest.raises(CodeInvalid, match=r"installed: .*(MATCH THE HASHES|hash)"):
        prepared(required(code, f"plain==1.0 --hash=sha256:{'0' * 64}", run="b"))


def test_markers_and_files_of_files_decide_what_is_installed(code: Path) -> None:
    (code / "more.txt").write_text("fine\nabsent ; python_version < '3'\n")
    (code / "limits.txt").write_text("fine<1\n")
    (place,) = prepared(required(code, "-r more.txt\n-c limits.txt"))
    assert (place / "fine.py").read_text() == "version = '0.9'\n"


def test_a_wheel_of_another_platform_is_no_candidate(code: Path) -> None:
    there = wheel(code / "index", "native", "1.0")
    assert there
    (code / "index/native-1.0-py3-none-any.whl").rename(code / "index/native-1.0-cp27-none-win32.whl")
    with pytest.raises(CodeInvalid, match=r"No matching distribution .*native"):
        prepared(required(code, "native"))
