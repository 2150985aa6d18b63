"""The job script, run by a real shell with stand-ins for Slurm: what arrives at the program, what is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lambdas.backends.slurm.forms import KNOWN_VERSIONS, submission_form
from lambdas.backends.slurm.job_script import render
from lambdas.logic.jobs import Job, job_of
from tests.fakes.runs import run_on, spec_with
from tests.unit.lambdas.test_manifests import seed_cache, seed_run
from trainflow.client.spec_file import read_spec
from trainflow.deployment.slurm import JobComment, Site, Submission
from trainflow.nodes.instances import INSTANCE_TYPES
from trainflow.protocol.plan import Plan
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run import Stage

pytestmark = pytest.mark.lengthy

GOLDEN = Path("tests/assets/slurm/scripts")
SEEDS = sorted(path for path in Path("runs").glob("*.yaml") if read_spec(path).compute.backend == "slurm")
SEED_SITE = Site(shared_folder="/fsx", environment="/opt/trainflow", program_folder="/fsx/data/trainflow")

RUN = run_on("slurm", workload__image=None, compute__queue="trn1")
URL = "s3://artifacts/runs/bert-slurm-0123456789ab/"
NAME = "bert-slurm-0123456789ab-training-1"

NASTY = [
    "it's",
    '"',
    "$(touch pwned)",
    "`touch pwned`",
    "a\nb",
    "; exit 7",
    "$SLURM_NODEID",
    "\\",
    "",
    "${name}",
    "*",
    "$$",
]

SRUN = """#!/usr/bin/env python3
import os, subprocess, sys
flags, command = sys.argv[1:-3], sys.argv[-3:]
output, nodes = flags[flags.index("--output") + 1], int(flags[flags.index("--nodes") + 1])
codes = []
for index in range(nodes):
    with open(output.replace("%n", str(index)), "w") as log:
        environment = {**os.environ, "SLURM_NODEID": str(index), "SLURMD_NODENAME": f"n{index}"}
        codes.append(subprocess.run(command, env=environment, stdout=log, stderr=log).returncode)
sys.exit(max(codes))
"""

SCONTROL = """#!/bin/bash
case "$*" in
    "show hostnames "*) printf 'ip-10-0-3-1\\nip-10-0-3-2\\n' ;;
    "--oneliner show node ip-10-0-3-1") echo "NodeName=ip-10-0-3-1 Arch=x86_64 NodeAddr=127.0.0.3 Port=6818" ;;
    *) exit 1 ;;
esac
"""

PROGRAM = f"""#!/usr/bin/env python3
import json, os, pathlib, runpy, string, sys
if sys.argv[1:3] == ["-m", "trainer.supervisor"]:
    sys.path.insert(0, {str(Path.cwd())!r})
    del sys.argv[:2]
    runpy.run_module("trainer.supervisor", run_name="__main__", alter_sys=True)
me = {{"argv": sys.argv, "environ": dict(os.environ), "cwd": sorted(os.listdir("."))}}
if sys.argv[0].endswith("torchrun"):
    # torch.distributed.elastic fills in its own macro in the arguments of the program, and so halves "$$".
    me["argv"] = [string.Template(word).safe_substitute(local_rank="0") for word in me["argv"]]
    pathlib.Path(os.environ["TRAINFLOW_RESULT_FILE"]).write_text(json.dumps(me))
    print("trained")
    sys.exit(int(os.environ.get("FAILS_WITH", "0")) if os.environ["SLURM_NODEID"] == "1" else 0)
batch = pathlib.Path(os.environ["folder"]) / (sys.argv[2] + ".json")
batch.write_text(json.dumps(sys.argv[1:]))
"""


@dataclass
class Machine:
    """A shared file system, and nodes on which programs are called as on a real one."""

    folder: Path

    @property
    def site(self) -> Site:
        return Site(
            shared_folder=str(self.folder / "shared it's"),
            environment=str(self.folder / "venv"),
            program_folder=str(self.folder / "program"),
            properties={"PROPERTY": "one $two"},
        )

    @property
    def job_folder(self) -> Path:
        return self.folder_of(NAME)

    def folder_of(self, name: str) -> Path:
        """What a job of this name leaves."""
        return Path(self.site.shared_folder) / "jobs" / name

    def run(self, submission: Submission, *, job_id: int = 12, **environment: str) -> subprocess.CompletedProcess[str]:
        script = self.folder / "script.sh"
        script.write_text(submission.script)
        return subprocess.run(
            ["bash", str(script)],
            env={
                "PATH": f"{self.folder / 'slurm'}:{Path(sys.executable).parent}:/usr/bin:/bin",
                "HOME": str(self.folder),
                "TMPDIR": str(self.folder),
                "SLURM_JOB_ID": str(job_id),
                "SLURM_JOB_NODELIST": "ip-10-0-3-[1-2]",
                "SLURM_CPUS_ON_NODE": "128",
                **environment,
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def seen_on(self, node: int, *, name: str = NAME) -> Mapping[str, Any]:
        """What the program was given there."""
        seen: Mapping[str, Any] = json.loads((self.folder_of(name) / f"{node}.result").read_text())
        return seen


@contextmanager
def a_machine() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place in ("slurm", "venv/bin", "program/trainer", "shared it's"):
            (folder / place).mkdir(parents=True)
        programs = {
            "slurm/srun": SRUN,
            "slurm/scontrol": SCONTROL,
            "venv/bin/torchrun": PROGRAM,
            "venv/bin/python": PROGRAM,
        }
        for path, text in programs.items():
            (folder / path).write_text(text)
            (folder / path).chmod(0o755)
        yield Machine(folder)


@pytest.fixture
def machine() -> Iterator[Machine]:
    with a_machine() as made:
        yield made


def job(stage: Stage = Stage.TRAINING, **fields: Any) -> Job:
    return replace(job_of(RUN, stage, 1, artifacts_url=URL), **fields)


def plan_of(*program: str) -> Plan:
    """The plan of a training with another program."""
    plan = job().plan
    assert plan is not None and plan.launch is not None
    return replace(plan, launch=replace(plan.launch, program=program))


def submission(site: Site, stage: Stage = Stage.TRAINING, **fields: Any) -> Submission:
    (made,) = render(job(stage, **fields), site, artifacts_url=URL)
    return made


def test_the_program_runs_on_every_node_with_its_rank_and_the_first_nodes_address(machine: Machine) -> None:
    done = machine.run(submission(machine.site))
    assert (done.returncode, done.stderr) == (0, "")
    for node in (0, 1):
        argv = machine.seen_on(node)["argv"]
        given = dict(zip(argv[1::2], argv[2::2], strict=False))
        assert (given["--nnodes"], given["--node_rank"]) == ("2", str(node))
        assert given["--master_addr"] == "127.0.0.3"  # in numbers: ip-10-0-3-1 would be taken apart wrongly
        assert (machine.job_folder / f"{node}.exit").read_text() == f"0 n{node}\n"
        assert (machine.job_folder / f"{node}.log").read_text() == "trained\n"


def test_folders_lie_where_the_nodes_have_them(machine: Machine) -> None:
    environment = {"TRAINFLOW_RUN_DIR": "/runs/a", "OTHER_FOLDER": "/dataset", "TRAINFLOW_RESULT_FILE": "/dev/x"}
    machine.run(
        submission(
            machine.site,
            plan=plan_of("/data", "/data/x", "--a=/data", "--b=/database", "out=/runs/a=b", "c=d=/runs"),
            environment=environment,
        )
    )
    seen, shared = machine.seen_on(1), machine.site.shared_folder
    assert seen["argv"][-6:] == [
        f"{shared}/data",
        f"{shared}/data/x",
        f"--a={shared}/data",
        "--b=/database",
        f"out={shared}/runs/a=b",
        "c=d=/runs",
    ]
    assert seen["environ"]["TRAINFLOW_RUN_DIR"] == f"{shared}/runs/a"
    assert seen["environ"]["OTHER_FOLDER"] == "/dataset"
    assert seen["environ"]["TRAINFLOW_RESULT_FILE"] == str(machine.job_folder / "1.result")
    assert seen["environ"]["PROPERTY"] == "one $two"


def test_what_a_program_writes_beside_itself_stays_on_its_node(machine: Machine) -> None:
    machine.run(submission(machine.site))
    seen = machine.seen_on(0)
    assert seen["cwd"] == ["trainer"]
    assert seen["environ"]["PWD"] == seen["environ"]["TMPDIR"]
    assert seen["environ"]["PYTHONPATH"] == machine.site.program_folder
    assert not Path(seen["environ"]["TMPDIR"]).exists()


def test_a_job_has_a_scratch_folder_of_its_own_on_every_node_and_leaves_none(machine: Machine) -> None:
    machine.run(submission(machine.site))
    folders = [Path(machine.seen_on(node)["environ"]["TRAINFLOW_SCRATCH_DIR"]) for node in (0, 1)]
    assert len({*folders, *(Path(machine.seen_on(node)["environ"]["TMPDIR"]) for node in (0, 1))}) == 4
    assert not any(folder.exists() for folder in folders)


def test_scratch_is_on_the_nvme_disks_where_the_node_has_mounted_them(machine: Machine) -> None:
    disks = machine.folder / "nvme"
    disks.mkdir()
    made = submission(machine.site)
    assert "mktemp --directory --tmpdir=/scratch " in made.script
    machine.run(replace(made, script=made.script.replace("--tmpdir=/scratch ", f"--tmpdir={disks} ")))
    assert Path(machine.seen_on(0)["environ"]["TRAINFLOW_SCRATCH_DIR"]).parent == disks
    assert list(disks.iterdir()) == []


def test_a_node_without_nvme_disks_gives_none(machine: Machine) -> None:
    machine.run(submission(machine.site, instance=INSTANCE_TYPES["c7i.4xlarge"], environment={}))
    assert "TRAINFLOW_SCRATCH_DIR" not in machine.seen_on(0)["environ"]


def test_the_log_is_shipped_and_the_end_written_down(machine: Machine) -> None:
    done = machine.run(submission(machine.site), FAILS_WITH="3")
    assert done.returncode == 3
    shipped = json.loads((machine.job_folder / "trainer.slurm.ship.json").read_text())
    assert shipped[2:] == ["--folder", str(machine.job_folder), "--job", NAME, "--url", URL]
    finished = json.loads((machine.job_folder / "trainer.slurm.finish.json").read_text())
    given = dict(zip(finished[2::2], finished[3::2], strict=True))
    assert (given["--exit_code"], given["--num_nodes"], given["--spec_hash"]) == ("3", "2", job().spec_hash)
    assert (machine.job_folder / "ended").exists()


def test_a_second_job_of_the_same_name_does_not_run(machine: Machine) -> None:
    assert machine.run(submission(machine.site), job_id=12).returncode == 0
    again = machine.run(submission(machine.site), job_id=13)
    assert again.returncode == 1
    assert "this job has been started before" in again.stderr
    assert (machine.job_folder / "job_id").read_text() == "12\n"


@settings(max_examples=10, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=6))
@example(NASTY)
def test_arguments_arrive_as_they_were_written(arguments: list[str]) -> None:
    with a_machine() as machine:
        done = machine.run(submission(machine.site, plan=plan_of("train.py", *arguments)))
        argv = machine.seen_on(0)["argv"]
        assert argv[argv.index("train.py") + 1 :] == arguments
        assert done.returncode == 0
        assert not list(machine.folder.rglob("pwned"))


def test_the_environment_and_folders_arrive_as_they_were_written(machine: Machine) -> None:
    properties = {f"TEXT{number}": text for number, text in enumerate(NASTY)}
    assert machine.run(submission(replace(machine.site, properties=properties))).returncode == 0
    seen = machine.seen_on(0)["environ"]
    assert {name: seen.get(name) for name in properties} == properties


@pytest.mark.parametrize("text", NASTY)
def test_names_folders_and_addresses_are_no_commands(machine: Machine, text: str) -> None:
    """Specs are not let this far with such names. Should one be, then not as a command on every node."""
    name, url = f"job{text}", f"s3://artifacts/{text}/"
    site = replace(machine.site, program_folder=f"{machine.folder}/program{text}")
    environment = f"{machine.folder}/venv{text}"
    for link, target in ((site.program_folder, "program"), (environment, "venv")):
        if text:
            Path(link).symlink_to(machine.folder / target)
    training = job(run_id=f"run{text}", python_environment=environment)
    training = replace(training, ref=training.ref.model_copy(update={"name": name}))

    done = machine.run(*render(training, site, artifacts_url=url))

    assert (done.returncode, done.stderr) == (0, "")
    environ = machine.seen_on(0, name=name)["environ"]
    assert (environ["VIRTUAL_ENV"], environ["PYTHONPATH"]) == (environment, site.program_folder)
    for program in ("ship", "finish"):
        told = json.loads((machine.folder_of(name) / f"trainer.slurm.{program}.json").read_text())
        given = dict(zip(told[2::2], told[3::2], strict=True))
        assert (given["--job"], given["--url"]) == (name, url)
    assert not list(machine.folder.rglob("pwned"))


@pytest.mark.parametrize("version", KNOWN_VERSIONS)
def test_a_queue_travels_by_rest_as_it_was_written(version: int) -> None:
    site = Site(shared_folder="/fsx", environment="/venv", program_folder="/program")
    for text in filter(None, NASTY):
        form = submission_form(submission(site, queue=text), version)
        assert json.loads(json.dumps(form))["job"]["partition"] == text


def test_neurons_collectives_meet_at_the_first_node_at_a_port_that_nothing_is_given_by_chance(machine: Machine) -> None:
    machine.run(submission(machine.site))
    address, _, port = machine.seen_on(1)["environ"]["NEURON_RT_ROOT_COMM_ID"].partition(":")
    assert address == "127.0.0.3"
    assert 30000 <= int(port) < 32768
    assert int(port) != job().port


def test_without_neuron_there_are_no_collectives_of_neurons(machine: Machine) -> None:
    machine.run(submission(machine.site, instance=None))
    assert "NEURON_RT_ROOT_COMM_ID" not in machine.seen_on(0)["environ"]


def test_steps_have_the_scripts_environment_however_the_job_was_submitted(machine: Machine) -> None:
    machine.run(submission(machine.site), SLURM_EXPORT_ENV="NONE")
    assert machine.seen_on(0)["environ"]["SLURM_EXPORT_ENV"] == "ALL"


def test_a_gang_whose_first_node_has_no_address_logs_the_reason(machine: Machine) -> None:
    (machine.folder / "slurm/scontrol").write_text("#!/bin/bash\n[[ $2 == hostnames ]] && echo nowhere.invalid\n")
    assert machine.run(submission(machine.site)).returncode == 1
    said = "The address of nowhere.invalid is not known: neither scontrol nor getent tells it.\n"
    for node in (0, 1):
        assert (machine.job_folder / f"{node}.exit").read_text() == f"1 n{node}\n"
        assert (machine.job_folder / f"{node}.log").read_text() == said
    assert not (machine.job_folder / "0.result").exists()


def test_the_interfaces_name_is_left_to_slurms_nodes() -> None:
    """`eth0` is a pod's; on Amazon Linux 2023 a machine's is another, and none of the tutorials for Slurm sets it."""
    assert job().environment["FI_PROVIDER"] == "efa"
    assert "CCOM_SOCKET_IFNAME" not in job().environment
    in_pods = job_of(run_on("job"), Stage.TRAINING, 1, artifacts_url=URL)
    assert in_pods.environment["CCOM_SOCKET_IFNAME"] == "eth0"


@pytest.mark.parametrize("argument", ["$SLURM_NODEID", "$MASTER_ADDR"])
def test_only_the_launchers_own_words_are_filled_in(machine: Machine, argument: str) -> None:
    spec = spec_with(
        workload={"module": "trainer.pretrain", "arguments": {"node_rank": argument, "master_addr": argument}},
        compute__backend="slurm",
    )
    made = job_of(RUN.model_copy(update={"spec": parse_run_spec(spec)}), Stage.TRAINING, 1, artifacts_url=URL)
    machine.run(*render(made, machine.site, artifacts_url=URL))
    assert machine.seen_on(1)["argv"][-4:] == ["--node_rank", argument, "--master_addr", argument]


def test_a_gang_has_its_nodes_for_itself_and_a_signal_before_its_time_is_up() -> None:
    site = Site(shared_folder="/fsx", environment="/venv", program_folder="/program", small_programs_queue="cpu")
    made = submission(site, deadline_seconds=3601)
    assert replace(made, script="") == Submission(
        name=NAME,
        script="",
        comment=JobComment(
            run_id="bert-slurm-0123456789ab",
            stage="training",
            attempt=1,
            spec_hash=job(deadline_seconds=3601).spec_hash,
        ),
        num_nodes=2,
        time_limit_minutes=61,
        warn_seconds=120,
        partition="trn1",
        exclusive=True,
    )
    small = submission(site, stage=Stage.STAGE)
    assert (small.partition, small.exclusive, small.num_nodes, small.memory_mib) == ("cpu", False, 1, 2048)


def test_the_signal_comes_after_most_of_a_short_time_limit() -> None:
    site = Site(shared_folder="/fsx", environment="/venv", program_folder="/program")
    assert submission(site, deadline_seconds=60).warn_seconds == 15


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_the_scripts_of_a_seed_are_the_golden_ones(path: Path, stage: Stage) -> None:
    """`python -m tests.goldens` writes them again; review the difference before the commit."""
    run, golden = seed_run(path), GOLDEN / f"{path.stem}-{stage}.sh"
    url = f"s3://artifacts/runs/{run.run_id}/"
    (made,) = render(job_of(run, stage, 1, artifacts_url=url, cache=seed_cache(run)), SEED_SITE, artifacts_url=url)
    assert made.script == golden.read_text()


def test_the_script_is_what_the_shell_calls_well_formed() -> None:
    site = Site(shared_folder="/fsx", environment="/venv", program_folder="/program")
    checked = subprocess.run(["bash", "-n"], input=submission(site).script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
