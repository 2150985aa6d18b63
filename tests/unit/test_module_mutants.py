"""What the tool that makes faults in Python modules asks of mutmut, and reads of its answers."""

from __future__ import annotations

import tomllib

import pytest

from tests.module_mutants import GROUPS, REPOSITORY, Group, is_equivalent, sample, settings, statuses


def test_each_mutant_has_a_status() -> None:
    printed = """
    trainflow.protocol.archives.x_ending__mutmut_1: killed
    trainflow.protocol.archives.xǁArchiveǁname__mutmut_12: no tests
    lambdas.logic.watching.x_pause__mutmut_3: survived
    To apply a mutant on disk:
    """
    assert statuses(printed) == {
        "trainflow.protocol.archives.x_ending__mutmut_1": "killed",
        "trainflow.protocol.archives.xǁArchiveǁname__mutmut_12": "no tests",
        "lambdas.logic.watching.x_pause__mutmut_3": "survived",
    }


def test_a_sample_is_the_same_again_and_no_larger_than_what_there_is() -> None:
    mutants = [f"module.x_function__mutmut_{number}" for number in range(50)]
    assert sample(mutants, 10, seed=1) == sample(list(reversed(mutants)), 10, seed=1)
    assert sample(mutants, 10, seed=1) != sample(mutants, 10, seed=2)
    assert sample(mutants, 100, seed=1) == sorted(mutants)


@pytest.mark.parametrize("group", GROUPS.values(), ids=GROUPS)
def test_the_settings_name_files_that_are_there(group: Group) -> None:
    section = tomllib.loads(settings(group))["tool"]["mutmut"]
    for pattern in section["only_mutate"]:
        assert list(REPOSITORY.glob(pattern)), pattern
        assert pattern.startswith(f"{group.package}/")
    named = [*section["source_paths"], *section["also_copy"], *group.tests]
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
    assert group.package not in section["also_copy"], "the copy would replace the faults"


def test_no_mutant_runs_in_a_copy_of_a_process_with_threads() -> None:
    """It may crash because of them, and would count as noticed."""
    section = tomllib.loads(settings(GROUPS["staging"]))["tool"]["mutmut"]
    assert section["process_isolation"] == "forkserver"


@pytest.mark.parametrize(
    ("before", "after", "equivalent"),
    [
        ('headers.append(("If-Match", etag))', 'headers.append(("if-match", etag))', True),
        ('headers.append(("If-Match", etag))', 'headers.append(("XXIf-MatchXX", etag))', False),
        ('headers.append(("If-Match", etag))', 'headers.append(("If-Match", None))', False),
        ('hashlib.file_digest(file, "sha256")', 'hashlib.file_digest(file, "SHA256")', True),
        ('hashlib.file_digest(file, "sha256")', 'hashlib.file_digest(None, "sha256")', False),
        ('known["sha256"]', 'known["SHA256"]', False),
        ("return hashlib.new(name, usedforsecurity=False)", "return hashlib.new(name, usedforsecurity=None)", True),
        ("return hashlib.new(name, usedforsecurity=False)", "return hashlib.new(name, )", True),
        ("return hashlib.new(name, usedforsecurity=False)", "return hashlib.new(usedforsecurity=False)", False),
        ("etag = said.strip('\"')", "etag = said.strip('XX\"XX')", True),
        ("etag = said.strip('\"')", "etag = said.strip(None)", False),
        ("torch.load(path, weights_only=True, mmap=True)", "torch.load(path, mmap=True)", True),
        ("torch.load(path, weights_only=True, mmap=True)", "torch.load(path, weights_only=None, mmap=True)", True),
        ("torch.load(path, weights_only=True, mmap=True)", "torch.load(path, weights_only=False, mmap=True)", False),
        ("json.dumps(said, allow_nan=False)", "json.dumps(said, allow_nan=None)", True),
        ("json.dumps(said, allow_nan=False)", "json.dumps(said, allow_nan=True)", False),
        ("json.dumps(said, ensure_ascii=False)", "json.dumps(said, ensure_ascii=None)", True),
        ("json.dumps(said, ensure_ascii=False)", "json.dumps(said, ensure_ascii=True)", False),
        ("run(command, text=True, check=False)", "run(command, text=True, )", True),
        ("run(command, text=True, check=False)", "run(command, text=True, check=True)", False),
        ("run(command, text=True, check=False)", "run(command, check=False)", False),
        ('name = "Error"', 'name = "error"', False),
        ('("Range", "bytes=0-0")', '("Range", "BYTES=0-0")', False),
    ],
)
def test_a_change_that_does_the_same_does_not_count_and_any_other_does(
    before: str, after: str, equivalent: bool
) -> None:
    assert is_equivalent(f"    -    {before}\n    +    {after}") is equivalent
