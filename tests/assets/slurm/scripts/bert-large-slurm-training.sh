#!/bin/bash -l
# A job of Trainflow's; its comment says which.
set -u

folder=/fsx/jobs/bert-large-slurm-0123456789ab-training-1
mkdir -p /fsx/jobs /fsx/data /fsx/runs /fsx/cache
# A job of this name runs once, however often it was submitted. The first one leaves its number.
mkdir "$folder" || { echo "$folder is there: this job has been started before." >&2; exit 1; }
exec > "$folder/batch.log" 2>&1
echo "$SLURM_JOB_ID" > "$folder/job_id"
cat > "$folder/plan.json" <<'PLAN'
{
  "version": 1,
  "locked_memory": {"mebibytes": 5120},
  "node_test": {"processes": 32},
  "compile_cache": {"source": "/fsx/cache/bert-large-slurm-0123456789ab/bert-large-slurm-0123456789ab"},
  "launch": {"launcher": "torchrun", "num_nodes": 2, "processes": 32, "port": 22829, "program": ["-m", "trainer.pretrain", "--device", "xla", "--precision", "pure_bfloat16", "--batch_size", "16", "--grad_accum_usteps", "32", "--steps_this_run", "28125"]}
}
PLAN

export FI_EFA_USE_DEVICE_RDMA=1
export FI_EFA_USE_HUGE_PAGE=0
export FI_PROVIDER=efa
export NEURON_COMPILE_CACHE_URL=/fsx/cache/bert-large-slurm-0123456789ab/bert-large-slurm-0123456789ab/neuron
export NEURON_RT_RESET_CORES=1
export PYTHONUNBUFFERED=1
export TORCHINDUCTOR_CACHE_DIR=/fsx/cache/bert-large-slurm-0123456789ab/bert-large-slurm-0123456789ab/inductor
export TORCH_NEURONX_NEFF_CACHE_DIR=/fsx/cache/bert-large-slurm-0123456789ab/bert-large-slurm-0123456789ab/torch_neuronx
export TRAINFLOW_ATTEMPT=1
export TRAINFLOW_CACHE_DIR=/fsx/cache/bert-large-slurm-0123456789ab/bert-large-slurm-0123456789ab
export TRAINFLOW_DATA_DIR=/fsx/data/bert-pretrain-wikicorpus-tokenized-hdf5-seqlen128
export TRAINFLOW_PEAK_TFLOPS=95
export TRAINFLOW_RUN_DIR=/fsx/runs/bert-large-slurm-0123456789ab
export TRAINFLOW_RUN_ID=bert-large-slurm-0123456789ab
export TRAINFLOW_SCRATCH_DIR=/scratch
export TRAINFLOW_STAGE=training
export XLA_TRANSFER_SEED_ASYNC=1
export PATH=/opt/trainflow/bin:"$PATH" VIRTUAL_ENV=/opt/trainflow
export PYTHONPATH=/fsx/data/trainflow"${PYTHONPATH:+:$PYTHONPATH}"

# The first node's address in numbers: a name with digits and dots is taken apart wrongly where host:port is expected.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(scontrol --oneliner show node "$first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
MASTER_ADDR=$(getent ahostsv4 "${address:-$first}" | awk 'NR == 1 { print $1 }')
export MASTER_ADDR first folder
export NEURON_RT_ROOT_COMM_ID="$MASTER_ADDR:30685"
# Started with `sbatch --export=NONE`, steps would inherit that, and with it an empty environment.
export SLURM_EXPORT_ENV=ALL

on_a_node() {
    trap : TERM # the program's to answer; what it ends with has to be written down after it
    export TRAINFLOW_RESULT_FILE="$folder/$SLURM_NODEID.result"
    TRAINFLOW_SCRATCH_DIR=$(mktemp --directory --tmpdir=/scratch 2> /dev/null || mktemp --directory)
    export TRAINFLOW_SCRATCH_DIR
    # What a program writes beside itself stays on its node: nodes that share a folder disturb each other.
    TMPDIR=$(mktemp --directory)
    export TMPDIR
    cd "$TMPDIR" && ln -s /fsx/data/trainflow/* .
    began=$(LC_ALL=C stat --format %.9Y .)
    if [[ -z "$MASTER_ADDR" ]]; then
        echo "The address of $first is not known: neither scontrol nor getent tells it." >&2
        false
    else
        python -m trainer.supervisor --node_rank "$SLURM_NODEID" --master_addr "$MASTER_ADDR" --plan_file "$folder/plan.json"
    fi
    code=$?
    echo "$code $SLURMD_NODENAME" > "$folder/$SLURM_NODEID.exit"
    python -m trainer.lost_files --folder "$TMPDIR" --began "$began" --node_rank "$SLURM_NODEID" --num_nodes 2 --exit_code "$code" 2>> "$folder/batch.log"
    cd / && rm -rf "$TMPDIR" "$TRAINFLOW_SCRATCH_DIR"
    return "$code"
}
export -f on_a_node

# The log goes to S3 while the job runs, and again from where it was if this process is killed.
(
    trap '' TERM
    until python -m trainer.slurm.ship --folder "$folder" --job bert-large-slurm-0123456789ab-training-1 --url s3://artifacts/runs/bert-large-slurm-0123456789ab/; do
        [[ -e "$folder/ended" ]] && break
        sleep 2
    done
) &
shipper=$!

trap : TERM # scancel: the nodes are told the same, and what they end with is collected below
srun --nodes 2 --ntasks 2 --ntasks-per-node 1 --cpus-per-task "$SLURM_CPUS_ON_NODE" --cpu-bind none \
    --kill-on-bad-exit=1 --input none --output "$folder/%n.log" --open-mode truncate bash -c on_a_node &
step=$!
wait "$step"
while kill -0 "$step" 2> /dev/null; do wait "$step"; done # a signal ends a wait, and not the step
wait "$step"
code=$?

trap '' TERM
touch "$folder/ended"
python -m trainer.slurm.finish --folder "$folder" --job bert-large-slurm-0123456789ab-training-1 --url s3://artifacts/runs/bert-large-slurm-0123456789ab/ --exit_code "$code" \
    --seconds "$SECONDS" --warned_from 259020 --spec_hash f7b174a21e121821 --num_nodes 2
wait "$shipper"
exit "$code"
