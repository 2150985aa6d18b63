"""One list of archives: what the spec accepts, the stager reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.runs import spec_with
from trainflow.protocol import archives
from trainflow.spec.run_spec import parse_run_spec


@given(stem=st.text(max_size=20), ending=st.sampled_from(archives.ENDINGS))
def test_every_ending_is_recognised_and_removed(stem: str, ending: str) -> None:
    assert archives.is_archive(stem + ending)
    assert archives.is_compressed(stem + ending) == (ending not in archives.PLAIN)
    assert archives.without_ending(stem + ending) == stem


def test_no_ending_is_the_end_of_another() -> None:
    """Else it would matter which of them is removed."""
    ends = [(one, two) for one in archives.ENDINGS for two in archives.ENDINGS if one != two and one.endswith(two)]
    assert ends == []
    assert archives.without_ending("a.tar.tar.gz") == "a.tar"


@pytest.mark.parametrize("name", ["corpus.zip", "corpus", "corpus.gz", "corpus.tar.lz4", "tar"])
def test_other_names_are_no_archives(name: str) -> None:
    assert not archives.is_archive(name)
    assert archives.without_ending(name) == name


@pytest.mark.parametrize("ending", archives.ENDINGS)
def test_the_spec_accepts_every_ending_and_names_the_folder_without_it(ending: str) -> None:
    spec = parse_run_spec(spec_with(dataset={"url": f"s3://bucket/corpus#1{ending}"}))
    assert spec.dataset is not None
    assert (spec.dataset.bucket, spec.dataset.key) == ("bucket", f"corpus#1{ending}")
    assert spec.dataset.folder == "corpus-1"
