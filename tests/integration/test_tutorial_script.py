"""The script of the BERT tutorials as it is, apart from what only Neuron has, through `workload.script`.

The script is not part of this repository: TUTORIAL_FOLDER names the folder `torch-neuronx/training/dp_bert_hf_pretrain`
of a checkout of aws-neuron-samples. It runs on the torch-xla of `make test-trn1`, on this machine's CPU.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.integration.test_examples import curve, run

REPOSITORY = Path(__file__).parents[2]
XLA_PYTHON = REPOSITORY / ".venv-xla/bin/python"
SCRIPT = "dp_bert_large_hf_pretrain_hdf5.py"
SHARDS = "bert_pretrain_demo_tokenized_hdf5_seqlen64"
NUM_STEPS = 12

FOR_THE_CPU = (
    # transformers has no AdamW any more; torch's has the same arguments.
    (r"^    AdamW,$", ""),
    (r"^from transformers import \($", "from torch.optim import AdamW\nfrom transformers import BertConfig\n\\g<0>"),
    # Its configuration alone is used, and the weights would come from the network.
    (
        r"BertForPreTraining\.from_pretrained\(.*\)$",
        "BertForPreTraining(BertConfig(vocab_size=4096, num_hidden_layers=2, hidden_size=128, num_attention_heads=2))",
    ),
    (r"^( +)if is_pt21_plus:\n +import libneuronxla$", r"\1if False:"),  # a package of Neuron's compiler
)


@pytest.mark.slow
def test_the_tutorials_script_trains_with_its_curve_and_gradient_norm(tmp_path: Path) -> None:
    tutorial = os.environ.get("TUTORIAL_FOLDER")
    if tutorial is None or not XLA_PYTHON.exists():
        pytest.skip("TUTORIAL_FOLDER is not set, or .venv-xla is not there (make test-trn1 makes it)")
    shutil.copytree(tutorial, tmp_path, dirs_exist_ok=True)
    text = (tmp_path / SCRIPT).read_text()
    for pattern, replacement in FOR_THE_CPU:
        text, count = re.subn(pattern, replacement, text, flags=re.M)
        assert count, f"the script has changed: nothing in it is {pattern}"
    (tmp_path / SCRIPT).write_text(text)
    spec = {
        "version": 1,
        "name": "tutorial",
        "workload": {
            "script": SCRIPT,
            "code": ".",
            "image": "trainflow/trainer:demo",
            "arguments": {
                "data_dir": "{data_dir}/" + SHARDS,
                "output_dir": "{run_dir}",
                "max_steps": NUM_STEPS,
                "steps_this_run": NUM_STEPS,
                "warmup_steps": 2,
                "batch_size": 4,
                "grad_accum_usteps": 2,
                "seq_len": 64,
                "print_grad_norm": True,
                "enable_fp32": True,
                "optimizer": "AdamW",
                "lr": 1.0e-3,
            },
            "env": {"PJRT_DEVICE": "CPU", "PYTHON_EXEC": str(XLA_PYTHON)},  # the interpreter of torchrun's workers
        },
        "compute": {"instance_type": "c7i.xlarge", "num_nodes": 1, "processes_per_node": 1},
        "dataset": {"url": "s3://trainflow-demo/pydoc-wordpiece-seqlen64.tar"},
        "limits": {"max_duration_hours": 1},
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))

    ran = run(tmp_path, "spec.yaml")

    assert [step["step"] for step in ran.steps] == list(range(1, NUM_STEPS + 1))
    assert ran.steps[-1]["loss"] < ran.steps[0]["loss"]
    assert all(step["metrics.grad_norm"] > 0 and step["throughput"] > 0 for step in ran.steps)
    assert ran.steps[1]["learning_rate"] == 1.0e-3, "the end of the warm-up"
    assert curve(ran.report) == (1, NUM_STEPS)
    assert ran.record["warnings"] == []
