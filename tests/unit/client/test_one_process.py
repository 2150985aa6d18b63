"""One process gets no launcher if the program trains by itself, and torchrun if it fails without its variables."""

from __future__ import annotations

import ast

import pytest

from trainflow.client.programs.one_process import launcher_uses
from trainflow.client.programs.program import read_program
from trainflow.client.programs.reachable import Region
from trainflow.client.programs.source import Module

IMPORTS = "import os, torch\nimport torch.distributed as dist\n"

OPTIONAL = [
    "ddp = int(os.environ.get('RANK', -1)) != -1\nif ddp:\n    dist.init_process_group('nccl')\n"
    "    rank = int(os.environ['RANK'])",
    "is_many = 'WORLD_SIZE' in os.environ\nif is_many: dist.init_process_group()",
    "n = int(os.environ['WORLD_SIZE']) if 'WORLD_SIZE' in os.environ else 1\nif n > 1: dist.init_process_group()",
    "many = int(os.getenv('WORLD_SIZE', '1')) > 1\ndef main():\n    if not many: return\n"
    "    dist.init_process_group()\nmain()",
    "def setup(args):\n    if 'RANK' in os.environ: args.rank = int(os.environ['RANK'])\n"
    "    elif 'X' in os.environ: pass\n    else:\n        print('one process')\n        return\n"
    "    dist.init_process_group()\nsetup(args)",
    "def worker(args):\n    if args.distributed: dist.init_process_group(args.backend)\n"
    "if args.url == 'env://' and args.world_size == -1: args.world_size = int(os.environ['WORLD_SIZE'])\nworker(args)",
    "try: rank = int(os.environ['RANK'])\nexcept KeyError: rank = 0",
    "if os.environ.get('LOCAL_RANK') is not None: torch.cuda.set_device(int(os.environ['LOCAL_RANK']))",
    "class T:\n    def __init__(self, many):\n        self.many = many\n        if self.many_ranks(): self.begin()\n"
    "    def many_ranks(self): return os.environ.get('RANK', '') != ''\n"
    "    def begin(self): dist.init_process_group()\nif __name__ == '__main__': T(1)",
]

REQUIRED = [
    "rank = int(os.environ['RANK'])",
    "rank = int(os.environ.get('RANK'))",
    "local_rank = int(os.environ.get('LOCAL_RANK', 0))\ndist.init_process_group('gloo')",
    "def setup(): dist.init_process_group()\ndef main():\n    setup()\nif __name__ == '__main__': main()",
    "class T:\n    def __init__(self): self.rank = int(os.environ['RANK'])\nt = T()",
    "if not dist.is_initialized(): dist.init_process_group()",
    "if dist.is_available() and torch.cuda.is_available(): dist.init_process_group()",
    "if rank == 0: print(os.environ['RANK'])\ndist.init_process_group()",
    "try: dist.init_process_group()\nfinally: print('end')",
    "try: dist.init_process_group()\nexcept Exception as error: raise SystemExit(1)",
    "import typer\napp = typer.Typer()\n@app.command()\ndef train(): dist.init_process_group()\napp()",
    "def train(a): dist.init_process_group()\nrun(train)",
    "for step in range(3): print(int(os.environ['RANK']))",
]


def uses(source: str) -> str:
    tree = ast.parse(IMPORTS + source)
    return launcher_uses([Region(Module(given=tree), tree)])


@pytest.mark.parametrize("source", OPTIONAL)
def test_a_program_that_tests_for_several_processes_gets_a_launcher_only_for_several(source: str) -> None:
    found = read_program(IMPORTS + source)
    assert uses(source) == "optional"
    assert (found.launcher_for(gang=True), found.launcher_for(gang=False)) == ("torchrun", "none")


@pytest.mark.parametrize("source", REQUIRED)
def test_a_program_that_fails_without_a_launcher_gets_it_for_one_process_too(source: str) -> None:
    assert uses(source) == "required"
    assert read_program(IMPORTS + source).launcher_for(gang=False) == "torchrun"


@pytest.mark.parametrize(
    ("source", "launcher"),
    [
        ("import lightning as L\nL.Trainer().fit(m)", "none"),
        ("from lightning.fabric import Fabric\nFabric().launch()", "none"),
        ("from accelerate import Accelerator\nAccelerator()", "none"),
        ("from transformers import Trainer\nTrainer().train()", "none"),
        ("from transformers import Trainer\nimport deepspeed\nTrainer().train()", "torchrun"),
        ("from accelerate import Accelerator\nimport os\nrank = os.environ['RANK']", "torchrun"),
        ("import deepspeed\ndeepspeed.initialize()", "torchrun"),
        ("import torch.distributed as dist\nfrom mine import begin\nbegin(dist)", "torchrun"),
        ("import torch", "none"),
        ("from mpi4py import MPI", "mpi"),
    ],
)
def test_a_library_decides_where_the_program_says_nothing(source: str, launcher: str) -> None:
    assert read_program(source).launcher_for(gang=False) == launcher
