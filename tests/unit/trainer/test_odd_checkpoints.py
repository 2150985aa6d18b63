"""Whatever lies in a run's folder, the search for a checkpoint ends, soon and without an error."""

from __future__ import annotations

import io
import os
import pickle
import tempfile
import time
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import save as save_safetensors

from trainer.checkpoints import walking
from trainer.checkpoints.patterns import Rules, State, find, judged, newest_complete
from trainflow.protocol.checkpoint_pattern import CheckpointPattern

KILLED = Rules(may_be_cut_off=True)


def zipped() -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        archive.writestr("data.pkl", pickle.dumps({"a": list(range(50))}))
    return buffer.getvalue()


def arrays() -> bytes:
    np.savez(buffer := io.BytesIO(), a=np.arange(20.0))
    return buffer.getvalue()


def hdf5() -> bytes:
    with h5py.File(buffer := io.BytesIO(), "w") as file:
        file.create_dataset("a", data=np.arange(30.0))
    return buffer.getvalue()


WHOLE = {
    "zip": zipped(),
    "npz": arrays(),
    "h5": hdf5(),
    "safetensors": save_safetensors({"a": np.arange(20.0)}),
    "pickle": pickle.dumps({"weights": [b"\n." * 40, {"a": 1.5, "b": "text"}, np.arange(9)]}),
    "old pickle": pickle.dumps({"weights": [2**70, "text", 1.5]}, protocol=2),
}


@given(st.sampled_from(sorted(WHOLE)), st.data())
def test_a_file_that_was_cut_off_anywhere_is_never_complete(name: str, data: st.DataObject) -> None:
    content = WHOLE[name]
    length = data.draw(st.integers(min_value=11, max_value=len(content) - 1))
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "weights").write_bytes(content)
        assert judged(path, Rules()).state is State.COMPLETE
        path.write_bytes(content[:length])
        assert judged(path, Rules()).state is State.INCOMPLETE


NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: b"/" not in name and b"\0" not in name).map(os.fsdecode)
KNOWN = st.sampled_from(
    [
        *("config.json", "model.safetensors.index.json", ".metadata", "checkpoint", "latest", "model_index.json"),
        *("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt", "a-1-of-2", "x.index"),
        *("_CHECKPOINT_METADATA", "manifest.ocdbt", "latest.txt", "a.msgpack", "x.tmp", "iter_0000001"),
    ]
)
CONTENTS = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(
        [
            b'{"weight_map": {"a": "../../x", "b": 3}}',
            b'{"unet": ["diffusers", 1], "vae": [null, null]}',
            b"\x28\xb5\x2f\xfd\x00\x00",
            b"\xde\xff\xff",
            b"[" * 5000,
            b"\x1f\x8b\x08",
            b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff",
        ]
    ),
)


@given(st.dictionaries(st.lists(st.one_of(NAMES, KNOWN), min_size=1, max_size=3).map(tuple), CONTENTS, max_size=6))
@example({("checkpoint-9", "x.msgpack"): b"\x81\xa1a\xc6\xff\xff\xff\xff"})
@example({("checkpoint-9", "w"): b"BZh91AY", ("checkpoint-8", "latest"): b"\xff\xfe/../.."})
def test_no_tree_of_files_makes_the_search_fail(tree: dict[tuple[str, ...], bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for names, content in tree.items():
            path = Path(folder, "checkpoint-9", *names)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError:  # "." and "..", or a file where another name needs a folder
                continue
        (Path(folder) / "checkpoint-8").mkdir(exist_ok=True)
        for pattern in ("checkpoint-{step}", "**/{step}", "*"):
            newest_complete(find(pattern, Path(folder)), KILLED)


def test_links_that_loop_or_lead_nowhere_are_passed_over(tmp_path: Path) -> None:
    (folder := tmp_path / "checkpoint-1").mkdir()
    (folder / "weights.zip").write_bytes(WHOLE["zip"])
    (folder / "again").symlink_to(folder)
    (tmp_path / "checkpoint-2").symlink_to("checkpoint-2")
    (tmp_path / "checkpoint-3").symlink_to("nowhere")
    found, _ = newest_complete(find("**/checkpoint-{step}", tmp_path), KILLED)
    assert found is not None
    assert found.path == folder


def test_a_checkpoint_with_a_link_to_nothing_is_not_complete(tmp_path: Path) -> None:
    (folder := tmp_path / "checkpoint-1").mkdir()
    (folder / "weights.zip").write_bytes(WHOLE["zip"])
    (folder / "optimizer.zip").symlink_to(tmp_path / "deleted")
    assert judged(folder, Rules()).state is State.INCOMPLETE


def test_of_a_link_the_path_behind_it_is_taken(tmp_path: Path) -> None:
    (tmp_path / "step_20").mkdir()
    (tmp_path / "step_20" / "w.zip").write_bytes(WHOLE["zip"])
    (tmp_path / "latest").symlink_to("step_20")
    assert [each.path for each in find("latest", tmp_path)] == [tmp_path / "step_20"]
    (outside := tmp_path / "outside").mkdir()
    (run := tmp_path / "run").mkdir()
    (run / "latest").symlink_to(outside)
    assert [each.path for each in find("latest", run)] == [run / "latest"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-1").mkdir(mode=0)
    assert newest_complete(find("checkpoint-{step}", tmp_path), KILLED)[0] is None


def test_a_deep_tree_is_walked_to_its_end(tmp_path: Path) -> None:
    deep = str(tmp_path / "checkpoint-1")
    for _ in range(400):
        os.mkdir(deep)  # noqa: PTH102  (a path of this length is slow)
        deep += "/a"
    assert newest_complete(find("**/checkpoint-{step}", tmp_path), KILLED)[0] is None


def test_two_stars_stand_for_any_folders(tmp_path: Path) -> None:
    for name in ("checkpoint-1", "20261127/checkpoint-2", "a/b/checkpoint-3", "a/checkpoint-x", "a/checkpoint-4/deep"):
        (tmp_path / name).mkdir(parents=True)
    found = [(each.path.relative_to(tmp_path).as_posix(), each.step) for each in find("**/checkpoint-{step}", tmp_path)]
    assert found == [("a/checkpoint-4", 4), ("a/b/checkpoint-3", 3), ("20261127/checkpoint-2", 2), ("checkpoint-1", 1)]
    assert [each.step for each in find("a/**/checkpoint-{step}", tmp_path)] == [4, 3]
    assert CheckpointPattern("**/a/**/{step}").steps("x/a/y/a/z/7") == (7,)
    assert CheckpointPattern("**/a/**/{step}").steps("x/b/7") == ()


def test_the_search_ends_after_a_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        (tmp_path / f"checkpoint-{number}").mkdir()
    monkeypatch.setattr(walking, "MAX_ENTRIES", 20)
    assert len(find("**/checkpoint-{step}", tmp_path)) == 20


def test_many_stars_are_matched_in_linear_time() -> None:
    pattern = CheckpointPattern("/".join(["**", "a*"] * 12) + "/{step}")
    began = time.process_time()
    assert pattern.steps("/".join(["aaaa"] * 400) + "/b") == ()
    assert time.process_time() - began < 60  # an exponential search would not end
