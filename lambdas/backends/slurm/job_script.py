"""Job script of backend `slurm`. One template for every stage; a small program is a gang of one node.

Whatever comes from a spec is quoted for the shell, so that it arrives as it was written. A gang's plan is written to a
file of the job's folder, which all nodes read. The shell fills in two words of the supervisor's command, because only a
node knows its own rank and the address of the first one.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from string import Template

from lambdas.logic.jobs import Job
from trainflow.deployment.backends import MASTER_ADDRESS, NODE_RANK
from trainflow.deployment.slurm import SIGNAL_BEFORE_LIMIT_SECONDS, JobComment, Site, Submission
from trainflow.protocol import variables
from trainflow.protocol.plan import to_text, with_texts
from trainflow.protocol.pods import FOLDERS, JOBS, MOUNTS, SCRATCH_MOUNT
from trainflow.workflow.run import Stage

SMALL_PROGRAM_MEMORY_MIB = 2048
"""Staging and publishing stream: their memory does not grow with the data."""

SIGNAL_MAY_BE_EARLY_SECONDS = 60
"""slurmctld checks time limits from time to time, so its signal may come a minute before it is due (`sbatch`'s
manual)."""

COMMUNICATOR_PORTS = range(30000, 32768)
"""Ports above those of the jobs' rendezvous and below Linux's ephemeral ones."""

SUPERVISOR = (
    f'python -m trainer.supervisor --node_rank "{NODE_RANK}" --master_addr "{MASTER_ADDRESS}" '
    '--plan_file "$folder/plan.json"'
)

_MOUNTED = re.compile(rf"\A(?P<before>[^=]*=)?(?P<path>({'|'.join(MOUNTS)})(/.*)?)\Z", re.DOTALL)

TEMPLATE = Template(r"""#!/bin/bash -l
# A job of Trainflow's; its comment says which.
set -u

folder=$folder
mkdir -p $folders
# A job of this name runs once, however often it was submitted. The first one leaves its number.
mkdir "$$folder" || { echo "$$folder is there: this job has been started before." >&2; exit 1; }
exec > "$$folder/batch.log" 2>&1
echo "$$SLURM_JOB_ID" > "$$folder/job_id"
$plan
$exports
export PATH=$environment/bin:"$$PATH" VIRTUAL_ENV=$environment
export PYTHONPATH=$program_folder"$${PYTHONPATH:+:$$PYTHONPATH}"

# The first node's address in numbers: a name with digits and dots is taken apart wrongly where host:port is expected.
first=$$(scontrol show hostnames "$$SLURM_JOB_NODELIST" | head -n 1)
address=$$(scontrol --oneliner show node "$$first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
MASTER_ADDR=$$(getent ahostsv4 "$${address:-$$first}" | awk 'NR == 1 { print $$1 }')
export MASTER_ADDR first folder
$communicator
# Started with `sbatch --export=NONE`, steps would inherit that, and with it an empty environment.
export SLURM_EXPORT_ENV=ALL

on_a_node() {
    trap : TERM # the program's to answer; what it ends with has to be written down after it
    export $result_variable="$$folder/$$SLURM_NODEID.result"
$scratch    # What a program writes beside itself stays on its node: nodes that share a folder disturb each other.
    TMPDIR=$$(mktemp --directory)
    export TMPDIR
    cd "$$TMPDIR" && ln -s $program_folder/* .
$began    if [[ -z "$$MASTER_ADDR" ]]; then
        echo "The address of $$first is not known: neither scontrol nor getent tells it." >&2
        false
    else
        $command
    fi
    code=$$?
    echo "$$code $$SLURMD_NODENAME" > "$$folder/$$SLURM_NODEID.exit"
$lost_files    cd / && rm -rf "$$TMPDIR"$remove_scratch
    return "$$code"
}
export -f on_a_node

# The log goes to S3 while the job runs, and again from where it was if this process is killed.
(
    trap '' TERM
    until python -m trainer.slurm.ship --folder "$$folder" --job $name --url $url; do
        [[ -e "$$folder/ended" ]] && break
        sleep 2
    done
) &
shipper=$$!

trap : TERM # scancel: the nodes are told the same, and what they end with is collected below
srun --nodes $num_nodes --ntasks $num_nodes --ntasks-per-node 1 --cpus-per-task "$$SLURM_CPUS_ON_NODE" --cpu-bind none \
    --kill-on-bad-exit=1 --input none --output "$$folder/%n.log" --open-mode truncate bash -c on_a_node &
step=$$!
wait "$$step"
while kill -0 "$$step" 2> /dev/null; do wait "$$step"; done # a signal ends a wait, and not the step
wait "$$step"
code=$$?

trap '' TERM
touch "$$folder/ended"
python -m trainer.slurm.finish --folder "$$folder" --job $name --url $url --exit_code "$$code" \
    --seconds "$$SECONDS" --warned_from $warned_from --spec_hash $spec_hash --num_nodes $num_nodes
wait "$$shipper"
exit "$$code"
""")


def render(job: Job, site: Site, *, artifacts_url: str) -> list[Submission]:
    """The job to submit.

    Args:
        job: What to run.
        site: Description of the nodes.
        artifacts_url: `s3://bucket/prefix/` that the run's logs and records go to.
    """
    is_gang = job.instance is not None
    folder = f"{site.shared_folder}/{JOBS}/{job.ref.name}"
    minutes = math.ceil(job.deadline_seconds / 60)
    warn_seconds = min(SIGNAL_BEFORE_LIMIT_SECONDS, minutes * 60 // 4)
    environment = {**job.environment, **site.properties}
    environment.pop(variables.RESULT_FILE, None)  # set on each node for itself
    text = TEMPLATE.substitute(
        name=shlex.quote(job.ref.name),
        folder=shlex.quote(folder),
        folders=" ".join(f"{shlex.quote(site.shared_folder)}/{name}" for name in (JOBS, *FOLDERS)),
        exports="\n".join(_exports(environment, site)),
        environment=shlex.quote(job.python_environment or site.environment),
        program_folder=shlex.quote(site.program_folder),
        communicator=_communicator(job),
        scratch=_scratch(job),
        remove_scratch=f' "${variables.SCRATCH_DIR}"' if _has_scratch(job) else "",
        result_variable=variables.RESULT_FILE,
        plan=_plan(job, site),
        command=SUPERVISOR if job.plan else " ".join(shlex.quote(_on_the_nodes(word, site)) for word in job.command),
        began=_began(job),
        lost_files=_lost_files(job),
        url=shlex.quote(artifacts_url),
        num_nodes=job.ref.num_nodes,
        warned_from=minutes * 60 - warn_seconds - min(warn_seconds, SIGNAL_MAY_BE_EARLY_SECONDS),
        spec_hash=job.spec_hash,
    )
    return [
        Submission(
            name=job.ref.name,
            script=text,
            comment=JobComment(
                run_id=job.run_id, stage=job.ref.stage.value, attempt=job.ref.attempt, spec_hash=job.spec_hash
            ),
            num_nodes=job.ref.num_nodes,
            time_limit_minutes=minutes,
            warn_seconds=warn_seconds,
            partition=job.queue if is_gang else site.small_programs_queue,
            exclusive=is_gang,
            memory_mib=None if is_gang else SMALL_PROGRAM_MEMORY_MIB,
            avoided_nodes=job.avoided_nodes,
        )
    ]


def _communicator(job: Job) -> str:
    """Address of the rendezvous of Neuron's collectives: the first node, with a port of the job's own.

    It follows the guide of `nccom-test` in Neuron's documentation. Without it, frameworks choose an ephemeral port,
    which another job may use meanwhile.
    """
    if job.instance is None or not job.instance.uses_neuron:
        return ""
    port = COMMUNICATOR_PORTS[job.port % len(COMMUNICATOR_PORTS)]
    return f'export NEURON_RT_ROOT_COMM_ID="$MASTER_ADDR:{port}"'


def _scratch(job: Job) -> str:
    """A folder of the job's own on the node's NVMe disks; in TMPDIR where the node has mounted none."""
    if not _has_scratch(job):
        return ""
    made = f"mktemp --directory --tmpdir={SCRATCH_MOUNT} 2> /dev/null || mktemp --directory"
    return f"    {variables.SCRATCH_DIR}=$({made})\n    export {variables.SCRATCH_DIR}\n"


def _began(job: Job) -> str:
    """The time before the training starts, by the clock of the file system that it writes to."""
    return "    began=$(LC_ALL=C stat --format %.9Y .)\n" if job.ref.stage is Stage.TRAINING else ""


def _lost_files(job: Job) -> str:
    """The report of the files that a training leaves in the folder that is deleted. It comes after the exit code has
    been written: a job that is being ended has little time."""
    if job.ref.stage is not Stage.TRAINING:
        return ""
    place = f'--node_rank "$SLURM_NODEID" --num_nodes {job.ref.num_nodes} --exit_code "$code"'
    errors = '2>> "$folder/batch.log"'  # nodes with an older trainer have no such module; that is no program's error
    return f'    python -m trainer.lost_files --folder "$TMPDIR" --began "$began" {place} {errors}\n'


def _has_scratch(job: Job) -> bool:
    return job.instance is not None and job.instance.has_scratch


def _exports(environment: Mapping[str, str], site: Site) -> Iterator[str]:
    for name, value in sorted(environment.items()):
        yield f"export {name}={shlex.quote(_on_the_nodes(value, site))}"


def _plan(job: Job, site: Site) -> str:
    """The lines that write the plan's file. No line of a plan is the word that ends it: each begins with a brace or a
    space."""
    if job.plan is None:
        return ""
    plan = with_texts(job.plan, partial(_on_the_nodes, site=site))
    return f"cat > \"$folder/plan.json\" <<'PLAN'\n{to_text(plan)}\nPLAN\n"


def _on_the_nodes(text: str, site: Site) -> str:
    """The text with the nodes' path in place of a path below one of the folders that pods mount.

    Such a path is the whole text, or what is behind its first equals sign: `output=/runs/…`.
    """
    return _MOUNTED.sub(lambda match: f"{match['before'] or ''}{site.shared_folder}{match['path']}", text)
