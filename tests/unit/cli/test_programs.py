"""The source of a program says what it needs, where it writes, and how it starts and continues."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.wording import wording
from trainflow.client.programs.arguments import missing_arguments, unknown_arguments
from trainflow.client.programs.outputs import written_beside
from trainflow.client.programs.program import Program, read_program

ARGPARSE = "import argparse\np = argparse.ArgumentParser()\n"


def program(tmp_path: Path, main: str, files: Mapping[str, str] | None = None) -> Program:
    """A program in a folder with other files."""
    for name, content in {"train.py": main, **(files or {})}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return read_program((tmp_path / "train.py").read_bytes(), script=tmp_path / "train.py")


def required(found: Program) -> list[str]:
    return [flag.name for flag in (*found.flags.values(), *found.positionals) if flag.required]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (f'{ARGPARSE}p.add_argument("epochs", type=int); p.add_argument("--lr")', ["epochs"]),
        (f'{ARGPARSE}p.add_argument("data", nargs="?"); p.add_argument("more", nargs="*")', []),
        (f'{ARGPARSE}p.add_argument("files", nargs="+"); p.add_argument("--x", required=True)', ["x", "files"]),
        (f'{ARGPARSE}if fast: p.add_argument("--x", required=True)', []),
        (
            "import click\n@click.command()\n@click.option('--lr', required=True)\n@click.option('--a/--no-a')\n"
            "@click.argument('data')\n@click.argument('rest', required=False)\ndef main(**k): ...",
            ["lr", "data"],
        ),
        (
            "import typer\ndef main(data: str, out: str = typer.Option(...), lr: float = 0.1): ...\ntyper.run(main)",
            ["out", "data"],
        ),
        (
            "import typer\nfrom typing import Annotated\napp = typer.Typer()\n@app.command()\n"
            "def main(data: Annotated[str, typer.Option(help='a')], lr: Annotated[int, typer.Option()] = 1): ...",
            ["data"],
        ),
        ("import fire\ndef train(data, lr=0.1): ...\nfire.Fire(train)", ["data"]),
        (
            "from absl import flags\nflags.DEFINE_string('a', None, '')\n"
            "flags.DEFINE_string('b', None, '', required=True)\n"
            "flags.DEFINE_string('c', 'x', '')\nflags.mark_flags_as_required(['a'])",
            ["a", "b"],
        ),
        (
            "import tyro\nfrom dataclasses import dataclass\n"
            "@dataclass\nclass Inner:\n    size: int\n    rate: float = 0.1\n"
            "@dataclass\nclass C:\n    data: str\n    model: Inner\n    lr: float = 0.1\ntyro.cli(C)",
            ["data", "model.size"],
        ),
        (
            "from dataclasses import dataclass, field\nfrom transformers import HfArgumentParser, TrainingArguments\n"
            "@dataclass\nclass Base:\n    name: str\n"
            "@dataclass\nclass A(Base):\n    data: str = field(metadata={'help': 'd'})\n"
            "    size: int = field(default=1)\nkinds = (A, TrainingArguments)\nHfArgumentParser(kinds)",
            ["name", "data"],
        ),
        (
            "from simple_parsing import parse\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    data: str\n"
            "    lr: float = 1\nparse(A)",
            ["data"],
        ),
        (
            "from lightning.pytorch.cli import LightningCLI\nclass M:\n    def __init__(self, data: str, lr=0.1): ...\n"
            "LightningCLI(M)",
            ["model.data"],
        ),
        ("import sys\nepochs = int(sys.argv[1])\nname = sys.argv[2]", ["epochs", "name"]),
        ("import sys\nname = sys.argv[1] if len(sys.argv) > 1 else 'x'", []),
    ],
)
def test_arguments_without_a_default_are_required_whatever_library_reads_them(
    source: str, names: list[str], tmp_path: Path
) -> None:
    assert required(program(tmp_path, source)) == names


def test_a_hydra_program_requires_what_its_configuration_leaves_open(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("data: ???\nmodel: {size: 3, path: '???'}\noutput_dir: out\n")
    found = program(
        tmp_path, "import hydra\n@hydra.main(config_path='conf', config_name='config')\ndef main(cfg): ...\nmain()"
    )
    assert (found.style, required(found)) == ("overrides", ["data", "model.path"])
    assert missing_arguments(found, {}, ["data=x"]) == ["workload.positional: the program requires model.path; add it."]
    (wrong,) = unknown_arguments(found, {"lr": 1})
    assert "write 'lr=1' under workload.positional instead" in wrong


def test_options_of_a_local_module_count_and_those_of_an_unused_one_do_not(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from tools.options import get_args\nargs = get_args()",
        {
            "tools/options.py": f"def get_args():\n{indented(ARGPARSE)}    p.add_argument('--x', required=True)\n"
            f"def other():\n{indented(ARGPARSE)}    p.add_argument('--y', required=True)\n"
        },
    )
    assert required(found) == ["x"]


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("source", "launcher", "preset"),
    [
        ("from transformers import Trainer\nclass T(Trainer): ...\nT().train()", "torchrun", "hugging-face"),
        ("import transformers\ntransformers.Seq2SeqTrainer()", "torchrun", "hugging-face"),
        ("from trl import SFTTrainer\nSFTTrainer()", "torchrun", "hugging-face"),
        ("from trl import DPOTrainer as T\nT()", "torchrun", "hugging-face"),
        ("from transformers import AutoModel\nimport accelerate", "torchrun", None),
        ("import lightning as L\nL.Trainer()", "torchrun", "lightning"),
        ("from pytorch_lightning.cli import LightningCLI\nLightningCLI()", "torchrun", "lightning"),
        ("from lightning.fabric import Fabric\nFabric()", "torchrun", None),
        ("import deepspeed\ndeepspeed.initialize()", "torchrun", None),
        ("from composer import Trainer", "torchrun", None),
        ("from torchtitan.train import main", "torchrun", "torchtitan"),
        ("import torch\ntorch.distributed.init_process_group()", "torchrun", None),
        ("import torch.multiprocessing as mp\nmp.spawn(main, nprocs=2)", "none", None),
        ("import subprocess\nsubprocess.run(['torchrun', 'train.py'])", "none", None),
        ("import os\nos.system('accelerate launch train.py')", "none", None),
        ("import keras\nkeras.Model().fit()", "none", None),
        ("import torch  # torch.distributed and WORLD_SIZE are only words here", "none", None),
        ("import os\nos.environ['RANK'] = '0'", "none", None),
        ("import os\nos.environ['RANK'] = '0'\nimport torch.multiprocessing as mp\nmp.spawn(f)", "none", None),
        ("import os, torch.multiprocessing as mp\nif os.getenv('RANK'): pass\nelse: mp.spawn(f)", "torchrun", None),
    ],
)
def test_launcher_and_preset_follow_from_what_the_program_uses(
    source: str, launcher: str, preset: str | None, tmp_path: Path
) -> None:
    found = program(tmp_path, source)
    assert (found.launcher, found.preset) == (launcher, preset)


def test_a_library_behind_local_modules_is_found(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "from parts import Weighted\nWeighted().train()",
        {
            "parts/__init__.py": "from .loops import Weighted",
            "parts/loops.py": "from transformers import Trainer\nclass Weighted(Trainer): ...",
        },
    )
    assert (found.launcher, found.preset) == ("torchrun", "hugging-face")


USES = [
    ("out = os.path.join(args.where, 'x')\nos.makedirs(out, exist_ok=True)", "."),
    ("def save(path): torch.save({}, path)\nsave(f'{args.where}/last.pt')", "."),
    (
        "class T:\n    def __init__(self, args): self.args = args\n    def save(self): torch.save(1, self.args.where)",
        "model.pt",
    ),
    ("from pathlib import Path\nout = Path(args.where)\n(out / 'a').mkdir(parents=True)", "."),
    (
        "class T:\n  def __init__(self, to): self.to = to\n  def log(self): SummaryWriter(self.to)\nT(args.where)",
        ".",
    ),
    ("run(**vars(args))\ndef run(where, lr): torch.save(1, where + '/x.pt')", "."),
    ("torch.save(1, args.where + 'last.pt')", "model.pt"),
    ("np.savez('%s/x.npz' % args.where, a=1)", "."),
    ("save_file(weights, '{}/m.safetensors'.format(args.where))", "."),
    ("config = vars(args)\nos.makedirs(config['where'])", "."),
    ("with open(os.path.join(args.where, 'log.txt'), 'w') as f: f.write('')", "."),
    ("os.makedirs(os.path.join('runs', args.where))", None),
    ("torch.load(args.where)", None),
    ("open(args.where + '/x').read()", None),
    ("args = get(); x = args.where", None),
]


@pytest.mark.parametrize(("use", "path"), USES)
def test_a_flag_is_an_output_if_its_value_reaches_a_call_that_writes(
    use: str, path: str | None, tmp_path: Path
) -> None:
    found = program(
        tmp_path, f"{ARGPARSE}p.add_argument('--where'); p.add_argument('--lr')\nargs = p.parse_args()\n{use}"
    )
    assert {name: output.path for name, output in found.outputs.items()} == ({} if path is None else {"where": path})


@pytest.mark.parametrize("name", ["data_root", "cache", "pretrained", "train_images", "config", "tokenizer_out_vocab"])
def test_a_flag_for_an_input_is_no_output_though_the_program_writes_there(name: str, tmp_path: Path) -> None:
    found = program(tmp_path, f"{ARGPARSE}p.add_argument('--{name}')\nargs = p.parse_args()\nos.makedirs(args.{name})")
    assert found.outputs == {}


def test_a_variable_of_the_environment_may_say_where_a_program_writes(tmp_path: Path) -> None:
    source = "import os, torch\nbase = os.environ.get('MY_BASE_DIR', '.')\ntorch.save(1, os.path.join(base, 'a.pt'))"
    assert list(program(tmp_path, source).variables) == ["MY_BASE_DIR"]
    assert not program(tmp_path, "import os\nos.makedirs(os.environ['HOME'] + '/x')").variables


def test_files_that_no_flag_moves_are_named_with_their_lines(tmp_path: Path) -> None:
    source = "import torch\ntorch.save(1, 'model.pt')\nopen('/tmp/x', 'w')\nopen('data/x', 'w')\nopen('in.txt')\n"
    assert {path: use.line for path, use in written_beside(program(tmp_path, source).uses).items()} == {"model.pt": 2}


SAVING = f"{ARGPARSE}p.add_argument('--out_dir', default='out')\n"


@pytest.mark.parametrize(
    ("source", "path", "resume", "is_certain"),
    [
        (
            f"{SAVING}p.add_argument('--resume')\nargs = p.parse_args()\nif args.resume: torch.load(args.resume)\n"
            "torch.save(1, f'{args.out_dir}/ckpt_{step}.pt')",
            "ckpt_{step}.pt",
            ("--resume", "{checkpoint}"),
            True,
        ),
        (
            f"{SAVING}p.add_argument('--resume')\nargs = p.parse_args()\n"
            "torch.save(1, f'{args.out_dir}/ckpt_{step}.pt')",
            "ckpt_{step}.pt",
            ("--resume", "{checkpoint}"),
            False,
        ),
        (
            f"{SAVING}p.add_argument('--start')\nargs = p.parse_args()\nlast = os.path.join(args.out_dir, 'last.pt')\n"
            "if args.start == 'again': state = torch.load(last)\ntorch.save(1, last)",
            "last.pt",
            ("--start", "again"),
            True,
        ),
        (
            f"{SAVING}args = p.parse_args()\nlast = os.path.join(args.out_dir, 'last.pt')\n"
            "if os.path.exists(last): state = torch.load(last)\ntorch.save(1, last)",
            "last.pt",
            (),
            True,
        ),
        (
            f"{SAVING}args = p.parse_args()\nlast = os.path.join(args.out_dir, 'last.pt')\n"
            "if lucky(): state = torch.load(last)\ntorch.save(1, last)",
            "last.pt",
            (),
            False,
        ),
        (
            f"{SAVING}p.add_argument('--again', action='store_true')\nargs = p.parse_args()\n"
            "def load(): return torch.load(args.out_dir + '/epoch_' + str(epoch) + '.pth')\nif args.again: load()\n"
            "torch.save(1, args.out_dir + '/epoch_' + str(epoch) + '.pth')",
            "epoch_{step}.pth",
            ("--again",),
            True,
        ),
        (
            f"{SAVING}args = p.parse_args()\nfor epoch in range(3):\n"
            "    accelerator.save_state(os.path.join(args.out_dir, f'epoch_{epoch}'))",
            "epoch_{step}",
            (),
            False,
        ),
        (
            f"{SAVING}args = p.parse_args()\nfolder = os.path.join(args.out_dir, time.strftime('%H%M'))\n"
            "torch.save(1, f'{folder}/epoch{epoch}-step{step:06d}.pt')",
            "*/epoch*-step{step}.pt",
            (),
            False,
        ),
        (f"{SAVING}args = p.parse_args()\ntorch.save(1, f'{{args.out_dir}}/best_model.pt')", None, (), False),
    ],
)
def test_checkpoints_and_the_words_that_continue_from_them_are_found_by_use(
    source: str, path: str | None, resume: tuple[str, ...], is_certain: bool, tmp_path: Path
) -> None:
    found = program(tmp_path, f"import os, time, torch\n{source}").checkpoints
    assert (found.path, found.resume, found.is_certain) == (path, resume, is_certain)


def test_a_configurator_takes_assignments_and_its_start_continues(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        "out_dir = 'out'\nstart = 'scratch'\nexec(open('configurator.py').read())\nimport os, torch\n"
        "os.makedirs(out_dir)\nlast = os.path.join(out_dir, 'ckpt.pt')\n"
        "if start == 'resume':\n    torch.load(last)\ntorch.save(1, last)",
    )
    assert (found.style, {name: output.path for name, output in found.outputs.items()}) == (
        "assignments",
        {"out_dir": "."},
    )
    assert (found.checkpoints.path, found.checkpoints.resume) == ("ckpt.pt", ("--start=resume",))


def test_a_program_that_sets_its_own_variables_takes_assignments(tmp_path: Path) -> None:
    """Without a file for it: the loop over the words is the program's."""
    path = Path(__file__).parents[2] / "assets/programs/strangers/assignments/train.py"
    found = read_program(path.read_bytes(), script=path)
    assert found.style == "assignments"
    assert (found.checkpoints.path, found.checkpoints.resume) == ("ckpt.pt", ("--init_from=resume",))
    assert found.outputs["out_dir"].path == "."


def test_pretrained_weights_are_no_checkpoint_to_continue_from(tmp_path: Path) -> None:
    source = f"{SAVING}p.add_argument('--pretrained_checkpoint')\nargs = p.parse_args()\n"
    found = program(tmp_path, f"{source}import torch\ntorch.load(args.pretrained_checkpoint)").checkpoints
    assert found.resume == ()


DEMANDS = (
    f"{ARGPARSE}p.add_argument('--a'); p.add_argument('--b'); p.add_argument('--c', default=1)\nargs = p.parse_args()\n"
)


@pytest.mark.parametrize(
    ("source", "groups"),
    [
        ("if args.a is None and args.b is None: raise ValueError('a or b')", [("a", "b")]),
        ("if not args.a: p.error('a')", [("a",)]),
        ("assert args.b is not None", [("b",)]),
        ("if args.a is None and args.c: raise ValueError", []),
        ("if args.c == 2:\n    if args.a is None: raise ValueError", []),
        ("if args.c is None: raise ValueError", []),
    ],
)
def test_options_that_a_program_demands_later_are_found(
    source: str, groups: list[tuple[str, ...]], tmp_path: Path
) -> None:
    assert list(program(tmp_path, f"{DEMANDS}{source}").one_of) == groups


@pytest.mark.parametrize(
    ("name", "source", "script", "module", "search_path"),
    [
        ("train", "import torch", "train.py", None, None),
        ("pkg/train", "from . import data", None, "pkg.train", None),
        ("pkg/deep/train", "from ..data import x", None, "pkg.deep.train", None),
        ("pkg/__main__", "from .x import y", None, "pkg", None),
        ("src/pkg/train", "from .data import x", None, "pkg.train", "src"),
        ("tools/train", "import mine", "tools/train.py", None, "src"),
        ("my-tools/train", "from .data import x", "my-tools/train.py", None, None),
        ("train", "from .data import x", "train.py", None, None),
        ("pkg/train", "print(__package__)", None, "pkg.train", None),
    ],
)
def test_a_program_with_relative_imports_is_a_module(
    name: str, source: str, script: str | None, module: str | None, search_path: str | None, tmp_path: Path
) -> None:
    (tmp_path / "src" / "mine").mkdir(parents=True)
    path = tmp_path / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    place = read_program(path.read_bytes(), script=path, folder=tmp_path).place
    assert place is not None
    assert (place.script, place.module, place.search_path) == (script, module, search_path)


COMMANDS = (
    f"{ARGPARSE}s = p.add_subparsers(required=True)\n"
    "t = s.add_parser('train'); t.add_argument('--data', required=True)\n"
    "e = s.add_parser('eval'); e.add_argument('--weights', required=True); e.add_argument('image')\n"
)


@pytest.mark.parametrize(
    ("arguments", "words", "sentences"),
    [
        ({}, ["train", "--data", "x"], []),
        ({}, ["train", "--data=x"], []),
        ({}, ["train"], ["workload.positional: the program requires --data; add it."]),
        ({}, ["eval", "--weights=x"], [wording("programs.validate_knows_subcommands.1", "workload.positional")]),
        (
            {},
            [],
            [wording("programs.validate_knows_subcommands.2", "workload.positional")],
        ),
        (
            {"data": "x"},
            ["train"],
            [wording("programs.validate_knows_subcommands.3", "workload.arguments.data", "workload.positional")],
        ),
    ],
)
def test_validate_knows_subcommands(
    arguments: dict[str, str], words: list[str], sentences: list[str], tmp_path: Path
) -> None:
    assert missing_arguments(program(tmp_path, COMMANDS), arguments, words) == sentences


def test_validate_names_what_is_missing_and_what_nobody_has_filled_in(tmp_path: Path) -> None:
    found = program(
        tmp_path,
        f"{ARGPARSE}p.add_argument('epochs', help='Epochs in all.'); p.add_argument('save_every')\n"
        "p.add_argument('--out-dir', '-o', required=True); p.add_argument('--lr')",
    )
    assert missing_arguments(found, {"lr": 1}, ["3"]) == [
        "workload.arguments: the program requires --out-dir; add it.",
        wording(
            "programs.validate_names_what_is_missing_and_what_nobody_has_filled_in.1",
            "workload.positional",
            "save_every",
        ),
    ]
    assert missing_arguments(found, {"out_dir": "x"}, ["3", "4"]) == []
    assert missing_arguments(found, {"out": "x"}, ["3", "4"]) == []  # argparse takes the beginning of a name
    assert missing_arguments(found, {"out-dir": "change-me"}, ["change-me", "4"]) == [
        wording(
            "programs.validate_names_what_is_missing_and_what_nobody_has_filled_in.2",
            "workload.arguments.out",
            "'change-me'",
        ),
        wording(
            "programs.validate_names_what_is_missing_and_what_nobody_has_filled_in.3",
            "workload.positional",
            "'change-me'",
        ),
    ]
