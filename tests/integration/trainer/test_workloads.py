"""The two small examples as real processes: launched by torchrun, or by the training operator's variables alone."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
import torch
from moto.server import ThreadedMotoServer

DEADLINE_SECONDS = 240
LINE = re.compile(r"^LOG .* - \((\d+), (\d+)\) step_loss : ([\d.]+) learning_rate : \S+ throughput : [\d.]+$", re.M)
QUICK = {"device": "cpu", "num_drawn": 600, "epochs": 2, "log_steps": 2}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def torchrun(world_size: int) -> list[str]:
    return [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc_per_node", str(world_size)),
        *("--node_rank", "0", "--master_addr", "127.0.0.1", "--master_port", str(free_port())),
    ]


def start(module: str, folder: Path, launcher: list[str], environ: dict[str, str], **options: Any) -> Any:
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    return subprocess.Popen(
        [*launcher, "-m", f"trainer.{module}", *arguments],
        env={
            **os.environ,
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "TRAINFLOW_RUN_DIR": str(folder),
            "TRAINFLOW_RESULT_FILE": str(folder.with_suffix(".json")),
            **environ,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(module: str, folder: Path, world_size: int = 1, **options: Any) -> tuple[int, str, str, Any]:
    """Exit code, stdout, stderr, and what was left for the pod's status."""
    launcher = [sys.executable] if world_size == 1 else torchrun(world_size)
    process = start(module, folder, launcher, {}, **{**QUICK, **options})
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    left = folder.with_suffix(".json")
    return process.returncode, out, err, json.loads(left.read_text()) if left.exists() else None


def losses(out: str) -> dict[int, float]:
    return {int(step): float(loss) for _, step, loss in LINE.findall(out)}


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="models")
        yield client
    server.stop()


def test_the_perceptron_learns_and_ends_in_the_tutorials_words(tmp_path: Path) -> None:
    code, out, err, left = run("mlp", tmp_path / "run", num_drawn=8000, epochs=4)
    assert code == 0, err
    (final,) = re.findall(r"^Final loss is (\d\.\d{4})$", out, re.M)
    assert float(final) < 0.4
    assert "----------End Training" in out
    result = left["result"]
    assert result["accuracy"] > 0.9
    assert (result["steps"], result["world_size"]) == (1000, 1)
    assert losses(out)[1000] == pytest.approx(result["last_loss"], abs=1e-4) == pytest.approx(float(final), abs=1e-4)


def test_ranks_together_follow_the_losses_of_one(tmp_path: Path) -> None:
    code, out, err, left = run("mlp", tmp_path / "two", 2, micro_batch_size=16)
    assert code == 0, err
    _, alone, _, _ = run("mlp", tmp_path / "one", micro_batch_size=32)
    assert len(losses(alone)) == 20
    assert losses(out) == pytest.approx(losses(alone), abs=2e-4)
    assert left["result"]["world_size"] == 2
    assert out.count("Final loss is") == 1


def test_an_interrupted_training_ends_where_an_undisturbed_one_does(tmp_path: Path) -> None:
    _, undisturbed, _, _ = run("mlp", tmp_path / "whole")
    first = run("mlp", tmp_path / "parts", steps_this_run=7)
    second = run("mlp", tmp_path / "parts")
    assert (first[0], second[0]) == (0, 0), second[2]
    assert "verified, after step 7" in second[1]
    assert losses(first[1]) | losses(second[1]) == losses(undisturbed) | {7: losses(first[1])[7]}
    whole, parts = (
        torch.load(tmp_path / name / "checkpoints" / "step-00000038.pt", weights_only=True)["model"]
        for name in ("whole", "parts")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_another_number_of_processes_resumes(tmp_path: Path) -> None:
    """An elastic gang that has lost a node resumes with fewer processes."""
    run("mlp", tmp_path / "run", 2, steps_this_run=4)
    code, out, err, left = run("mlp", tmp_path / "run")
    assert code == 0, err
    assert "verified, after step 4" in out
    assert left["result"]["world_size"] == 1


def test_sigterm_leaves_a_checkpoint(tmp_path: Path) -> None:
    process = start("mlp", tmp_path / "run", torchrun(2), {}, **{**QUICK, "epochs": 100_000, "log_steps": 1})
    for line in process.stdout:
        if LINE.match(line):
            break
    for rank in psutil.Process(process.pid).children(recursive=True):
        rank.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    left = json.loads((tmp_path / "run.json").read_text())
    assert left["error"] == "Terminated", err
    assert list((tmp_path / "run" / "checkpoints").glob("step-*.pt"))


def test_the_classifier_puts_its_model_into_s3(tmp_path: Path, s3: Any) -> None:
    code, out, err, left = run("classifier", tmp_path / "run", 2, model_url="s3://models/digits/model.pt")
    assert code == 0, err
    assert left["result"]["model_url"] == "s3://models/digits/model.pt"
    assert losses(out)
    stored = io.BytesIO(s3.get_object(Bucket="models", Key="digits/model.pt")["Body"].read())
    weights = torch.load(stored, weights_only=True)
    saved = torch.load(left["result"]["checkpoint"], weights_only=True)["model"]
    assert all(torch.equal(weights[name], saved[name]) for name in saved)


def test_the_training_operators_variables_are_enough(tmp_path: Path) -> None:
    """A PyTorchJob may run the program itself, one process a pod, without torchrun."""
    port = str(free_port())
    ranks = [
        start(
            "classifier",
            tmp_path / f"run-{rank}",
            [sys.executable],
            {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
            **QUICK,
        )
        for rank in range(2)
    ]
    outs = [rank.communicate(timeout=DEADLINE_SECONDS) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outs
    assert json.loads((tmp_path / "run-0.json").read_text())["result"]["world_size"] == 2
    assert [bool(losses(out)) for out, _ in outs] == [True, False]


@pytest.mark.parametrize(
    ("module", "options", "error", "words"),
    [
        ("mlp", {"data_dir": "/no/such/folder"}, "DatasetNotFound", "train-images-idx3-ubyte"),
        ("mlp", {"epochs": 0}, "ConfigInvalid", "--epochs is 0"),
        ("mlp", {"frobnicate": 1}, "ConfigInvalid", "'--frobnicate' is not an option"),
        ("classifier", {"model_url": "http://x/y"}, "ConfigInvalid", "--model_url is 'http://x/y'"),
        ("classifier", {"output_dir": "/proc/nowhere"}, "StorageFailed", "/proc/nowhere"),
    ],
)
def test_bad_input_ends_with_one_sentence(
    tmp_path: Path, module: str, options: dict[str, Any], error: str, words: str
) -> None:
    code, _, err, left = run(module, tmp_path / "run", **options)
    assert code in (1, 2)
    assert left["error"] == error
    assert words in left["message"]
    assert "Traceback" not in err


def test_a_bucket_that_is_not_there_fails_the_run_but_not_the_model(tmp_path: Path, s3: Any) -> None:
    code, _, err, left = run("classifier", tmp_path / "run", model_url="s3://no-such-bucket/model.pt")
    assert (code, left["error"]) == (1, "StorageFailed")
    assert "s3://no-such-bucket/model.pt cannot be written" in left["message"]
    assert "Traceback" not in err
    assert list((tmp_path / "run" / "checkpoints").glob("step-*.pt"))


def test_a_precompile_job_has_nothing_to_compile(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "trainer.precompile", "--", sys.executable]
    process = start("mlp", tmp_path / "run", launcher, {}, **QUICK, steps_this_run=2)
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, err
    assert "Total graphs: 0" in out
    assert json.loads((tmp_path / "run.json").read_text()) == {
        "result": {"graphs": 0, "succeeded": 0, "failed": 0, "cached": 0}
    }


def test_an_example_is_compiled_where_that_is_asked_for(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "trainer.precompile", "--", sys.executable]
    process = start("mlp", tmp_path / "run", launcher, {}, **QUICK, compile=True)
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0, out + err
    assert json.loads((tmp_path / "run.json").read_text())["result"]["succeeded"] == 1


def test_an_example_does_not_go_on_with_other_pictures(tmp_path: Path) -> None:
    run("mlp", tmp_path / "run", steps_this_run=2)
    code, _, _, left = run("mlp", tmp_path / "run", num_drawn=700)
    assert (code, left["error"]) == (2, "CheckpointInvalid")
    assert "the data set is 700 pictures" in left["message"]
    code, out, err, _ = run("mlp", tmp_path / "run", num_drawn=700, allow_changes="dataset")
    assert code == 0, err
    assert "verified, after step 2" in out
