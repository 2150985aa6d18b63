"""Checkpoints that a program writes into its working folder, which is a folder of the run."""

from __future__ import annotations

import pytest

from trainflow.client.programs.program import read_program

ARGUMENTS = "import argparse, os, torch\np = argparse.ArgumentParser()\n"
RESUMES = f"{ARGUMENTS}p.add_argument('--resume', default='')\nargs = p.parse_args()\n"

SOURCES = [
    (  # the default of a parameter, in a function that gets the state
        f"{RESUMES}if args.resume: torch.load(args.resume)\n"
        "def keep(state, best, filename='last.pth.tar'): torch.save(state, filename)\nkeep(1, True)",
        ("workspace/last.pth.tar", ("--resume", "{checkpoint}"), True),
    ),
    (  # read again where it is there
        "import os, torch\ndef main(epochs, path='snap.pt'):\n    if os.path.exists(path): torch.load(path)\n"
        "    torch.save(1, path)\nif __name__ == '__main__': main(3)",
        ("workspace/snap.pt", (), True),
    ),
    (
        "import torch\ntry: torch.load('out/last.pt')\nexcept FileNotFoundError: pass\ntorch.save(1, './out/last.pt')",
        ("workspace/out/last.pt", (), True),
    ),
    (  # the best model, read for a test at the end
        "import torch\ntorch.save(1, 'model.pt')\nmodel = torch.load('model.pt')",
        ("workspace/model.pt", (), False),
    ),
    ("import torch\nfor epoch in x: torch.save(1, f'e/epoch_{epoch}.pt')", ("workspace/e/epoch_{step}.pt", (), False)),
    ("import torch\ntorch.save(1, '../kept/last.pt')", ("kept/last.pt", (), False)),
    ("import torch\ntorch.save(1, '../../kept/last.pt')", (None, (), False)),
    ("import torch\ntorch.save(1, '/data/last.pt')", (None, (), False)),
    (  # a flag's default in the same call: the flag has the place
        f"{ARGUMENTS}p.add_argument('--out_dir')\nargs = p.parse_args()\n"
        "folder = args.out_dir if args.out_dir else './runs'\ntorch.save(1, os.path.join(folder, 'last.pt'))",
        ("last.pt", (), False),
    ),
    (  # a function of a package that is not read
        f"{RESUMES}from lib import resume_whole_checkpoint\nif args.resume: resume_whole_checkpoint(m, args.resume)\n"
        "torch.save(1, f'ckpt_{step}.pt')",
        ("workspace/ckpt_{step}.pt", ("--resume", "{checkpoint}"), True),
    ),
    (
        "import fsspec, torch\ndef load(path):\n    try: file = fsspec.open(path)\n"
        "    except FileNotFoundError: return\n    with file as f: torch.load(f)\n"
        "path = 'snapshot.pt'\nload(path)\ntorch.save(1, path)",
        ("workspace/snapshot.pt", (), True),
    ),
    (  # names that are joined from unknown parts are one folder
        f"{ARGUMENTS}p.add_argument('--out_dir')\nargs = p.parse_args()\nname = '-'.join([now(), model, str(size)])\n"
        "torch.save(1, f'{args.out_dir}/{name}/checkpoint-{epoch}.pt')",
        ("*/checkpoint-{step}.pt", (), False),
    ),
    (  # a name that begins with an option's value; the program looks itself for the newest one in the folder
        f"{ARGUMENTS}p.add_argument('--out_dir')\np.add_argument('--kind')\np.add_argument('--resume_from')\n"
        "args = p.parse_args()\ndef save(root, name): dcp.save(1, os.path.join(root, name))\n"
        "if args.resume_from: newest = max(Path(args.resume_from).glob(f'{args.kind}-*'))\n"
        "save(args.out_dir, f'{args.kind}-{step}steps')",
        ("*-{step}steps", ("--resume_from", "{checkpoint}/.."), True),
    ),
    (  # the same with a list of the folder
        f"{ARGUMENTS}p.add_argument('--out_dir')\np.add_argument('--resume_from')\nargs = p.parse_args()\n"
        "if args.resume_from: torch.load(newest(os.listdir(args.resume_from)))\n"
        "torch.save(1, f'{args.out_dir}/step_{step}.pt')",
        ("step_{step}.pt", ("--resume_from", "{checkpoint}/.."), True),
    ),
    (  # it opens a file there, and so needs the checkpoint itself
        f"{ARGUMENTS}p.add_argument('--out_dir')\np.add_argument('--resume_from')\nargs = p.parse_args()\n"
        "if args.resume_from: os.listdir(args.resume_from); torch.load(f'{args.resume_from}/state.pt')\n"
        "torch.save(1, f'{args.out_dir}/step_{step}.pt')",
        ("step_{step}.pt", ("--resume_from", "{checkpoint}"), True),
    ),
    (  # the name of a step, put behind the option's folder in the next line
        f"{ARGUMENTS}p.add_argument('--out_dir')\nargs = p.parse_args()\nname = f'step_{{step}}'\n"
        "if args.out_dir: name = os.path.join(args.out_dir, name)\naccelerator.save_state(name)",
        ("step_{step}", (), False),
    ),
    (  # a parser's output that the program moves to a folder of its own
        "from datetime import datetime\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "import os\n"
        "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "args.output_dir = os.path.join(args.output_dir, datetime.now().isoformat())\n"
        "Trainer(args=args).train(resume_from_checkpoint=args.resume_from_checkpoint)",
        ("**/checkpoint-{step}", ("--resume_from_checkpoint", "{checkpoint}"), True),
    ),
    (
        "from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments('out')).train()",
        ("workspace/**/checkpoint-{step}", (), False),
    ),
    (
        f"{RESUMES.replace('resume', 'ckpt_path')}import lightning as L\nL.Trainer().fit(m, ckpt_path=args.ckpt_path)",
        (
            "workspace/**/lightning_logs/version_*/checkpoints/epoch=*-step={step}.ckpt",
            ("--ckpt_path", "{checkpoint}"),
            True,
        ),
    ),
]


@pytest.mark.parametrize(("source", "expected"), SOURCES)
def test_checkpoints_without_a_flag_for_their_place_are_below_the_working_folder(
    source: str, expected: tuple[str | None, tuple[str, ...], bool]
) -> None:
    found = read_program(source).checkpoints
    assert (found.path, found.resume, found.is_certain) == expected
