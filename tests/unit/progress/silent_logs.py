"""Logs without the progress of a training, each a reduction of what public programs print.

A kind is a list of lines in which `{n}` is a number that rises with every repetition, `{x}` a decimal that changes, and
`{m}` a number that rises in larger steps. The lines are repeated, as they are in logs, and printed by several loggers.
"""

from __future__ import annotations

from collections.abc import Iterator

KINDS: dict[str, list[str]] = {
    # compilers and build tools
    "gcc warning": ["src/kernel.cpp:{n}:12: warning: comparison of integers, possible loss of data [-Wconversion]"],
    "gcc precision": ["layer.cu({n}): warning #177-D: loss of precision {x}, step {n} of the pass"],
    "ninja": ["[{n}/120] Building CXX object CMakeFiles/core.dir/src/batch_{n}.cpp.o"],
    "cmake percent": ["[ {n}%] Building CUDA object kernels/softmax_step.cu.o"],
    "make": ["make[{n}]: Entering directory '/src/epoch/{n}'"],
    "cargo": ["   Compiling batch-iter v0.{n}.1", "    Building [=====>      ] {n}/120: loss_step"],
    "neuronx-cc passes": ["2026-01-01T00:00:{n}Z INFO 3835 [Tensorizer/Step]: StepFusion finished after {x} seconds"],
    "neuronx-cc wrapper": [
        "2026-01-01 00:00:24.000044:  25614  INFO ||NEURON_CC_WRAPPER||: Call compiler: ['neuronx-cc']",
        "Compiler status PASS",
    ],
    "neuronx-cc statistics": ["INFO 65636 [Statistics]:       {n}  LayoutPass   Number of loops fused in iteration"],
    "neuronx-cc cost": ["INFO 3835 [Scheduler]: estimated cost {x} after pass {n}"],
    "xla dump": ["*** Begin module jit_train_step.{n} ***", "  loss.{n} = f32[] reduce(f32[8,{n}] x)"],
    "triton autotune": ["Autotuning kernel train_step config {n}: BLOCK_M: 64, num_warps: 4, {x} ms"],
    "inductor autotune": ["AUTOTUNE mm(1024x{n}, 512x512)", "  triton_mm_{n} {x} ms 98.1% ACC_TYPE='tl.float32'"],
    "docker build": ["Step {n}/24 : RUN pip install loss-metrics", " ---> Running in 97a66ffb8dc0"],
    "buildkit": ["#{n} [stage {n}/9] RUN pip install accuracy", "#{n} DONE {x}s"],
    # installers and downloads
    "pip": [
        "Collecting accelerate=={n}.{n}.0",
        "  Downloading accelerate-0.{n}.0-py3-none-any.whl (314 kB)",
        "     ━━━━━━━━━━━━━━━━━━━━ {m}.2/314.2 kB {x} MB/s eta 0:00:01",
    ],
    "apt": ["Get:{n} http://deb.debian.org/debian bookworm/main amd64 libloss{n} amd64 2.{n}-1 [{m} kB]"],
    "conda": ["pytorch-2.{n}         | 1.2 GB    | ######   | {n}% "],
    "npm": ["added {m} packages, and audited {m} packages in {n}s"],
    "wget": ["{m}K .......... .......... .......... {n}% {x}M 0s"],
    "curl": [" {n}  104M    {n} 52.1M    0     0  {x}M      0  0:00:09  0:00:04  0:00:05 12.1M"],
    "hub download": ["model-0000{n}-of-00009.safetensors: {n}%|█▌     | {m}M/4.98G [00:01<00:07, 586MB/s]"],
    "hub shards": ["Loading checkpoint shards:  50%|█████     | {n}/40 [00:03<00:03,  {x}s/it]"],
    "s3 sync": ["Completed {m}.0 MiB/1.2 GiB ({x} MiB/s) with {n} file(s) remaining"],
    "git clone": ["Receiving objects:  {n}% ({m}/12000), 4.51 MiB | {x} MiB/s"],
    "upload": ["train.tar.gz: 100%|██████████| {m}/{m} [00:10<00:00, {x}kB/s]"],
    # data
    "datasets map": ["Map (num_proc=8):  10%|█         | {m}/100000 [00:02<00:18, {x} examples/s]"],
    "tokenizer": ["Running tokenizer on dataset:  10%|█   | {m}/100000 [00:02<00:18, {x} examples/s]"],
    "tfrecords": ["Generating train examples...: {m} examples [00:01, {x} examples/s]"],
    "arrow cache": ["Loading cached processed dataset at /cache/step-{n}/cache-{m}.arrow"],
    "bpe": ["[00:00:0{n}] Compute merges                 ███████ {m} / 30000"],
    "index": [" > building shuffle index with split [0, {m}) and [{m}, {m}) ...", " > elapsed time {x}"],
    "spark": ["26/01/01 00:00:00 INFO TaskSetManager: Finished task {n}.0 in stage 3.0 (TID {m}) in {n} ms ({n}/200)"],
    "spark stage": ["[Stage {n}:===============>            ({m} + 8) / 200]"],
    "dask": ["distributed.scheduler - INFO - Receive client connection: Client-{m}"],
    # communication and devices
    "nccl": ["node-0:{m}:{m} [{n}] NCCL INFO Channel 0{n}/24 : 0 1 2 3 4 5 6 7"],
    "nccl ring": ["node-0:12:{m} [0] NCCL INFO Ring 0{n} : {n} -> {n} [send] via NET/OFI/{n}", "comm {x} rank {n}"],
    "nccl error": ["node-0:12:{m} [{n}] NCCL WARN NET/IB : Got completion with error {n}, opcode 1, vendor err {m}"],
    "libfabric": ["libfabric:{m}:1700000000:efa:core:efa_iter_step():{n}<warn> batch {n} failed: error {n}"],
    "efa counters": ["rdma_write_err: {n}, rx_drops: {m}, retries {x}"],
    "gloo": ["[{n}] Rank 0 is connected to {n} peer ranks. Expected number of connected peer ranks is : 7"],
    "neuron runtime": ["2026-Jan-01 00:00:0{n}.0123 {m}:{m} INFO  NRT:nrt_init  loaded batch {n} on NC {n}"],
    "nvidia-smi": ["|   {n}  A100   On  | 00000000:07:00.0 Off |   {n} |", "| N/A {n}C P0 52W | {m}MiB |"],
    "ping": ["{n} packets transmitted, {n} received, {n}.0% packet loss, time {m}ms"],
    "iperf": ["[  5]   {n}.00-{m}.00   sec  1.10 GBytes  {x} Gbits/sec    {n}   1.21 MBytes"],
    "kernel": ["[{m}.{n}] nvme nvme0: I/O {n} QID {n} timeout, completion polled, error {x}"],
    "oom killer": ["[{m}.{n}] Out of memory: Killed process {m} (python) total-vm:{m}kB, score {n}"],
    "lustre": ["Lustre: {m}:{n}:(client.c:2295:ptlrpc_expire_one_request()) @@@ Request sent has timed out"],
    # servers and orchestration
    "access log": ['10.0.0.{n} - - [01/Jan/2026:00:00:0{n} +0000] "GET /epoch/{n}/loss HTTP/1.1" 200 {m} "-" "{x}"'],
    "uvicorn": ['INFO:     10.0.0.1:{m} - "POST /v1/step/{n} HTTP/1.1" 200 OK'],
    "vllm": ["INFO metrics.py:351] Avg prompt throughput: {x} tokens/s, Running: {n} reqs, GPU KV cache usage: {x}%."],
    "prometheus": ['http_requests_total{{code="200",batch="{n}"}} {m}'],
    "kubelet": ["I0101 00:00:00.{m} 12 kubelet.go:{n}] SyncLoop ADD pods=[training-{n}] retry {n} in {x}s"],
    "etcd": ['{{"level":"info","ts":"2026-01-01T00:00:0{n}Z","msg":"compacted","revision":{m},"took":"{x}ms"}}'],
    "slurm": ["slurmstepd: error: *** STEP {m}.{n} ON node-{n} CANCELLED AT 2026-01-01T00:00:00 ***"],
    "retry": ["Retrying (Retry(total={n}, connect=None)) after connection broken: attempt {n}, wait {x}"],
    "ray": ["(raylet) Spilled {m} MiB, {n} objects, write throughput {x} MiB/s."],
    "heartbeat": ["heartbeat {n}: uptime {m} s, load {x}"],
    "memory": ["iteration memory: allocated {x} GiB, reserved {m} MiB, step peak {n} GiB"],
    # errors
    "java trace": ["\tat org.apache.Step.loss(Step.java:{n})", "\tat org.apache.Batch.run(Batch.java:{m})"],
    "python trace": ['  File "/app/train_step.py", line {n}, in loss', "    loss = step({n}, {x})"],
    "python warning": ["/app/optim.py:{n}: UserWarning: step {n} was skipped because the loss scale is {x}"],
    "scheduler warning": ["lr_scheduler.py:{n}: UserWarning: call `optimizer.step()` before `lr_scheduler.step()`"],
    "loss scale": ["Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to {m}.0"],
    "deprecation": ["FutureWarning: `num_steps={n}` is deprecated and will be removed in version 0.{n}"],
    "assertion": ["../Loss.cu:{n}: operator(): block: [{n},0,0], thread: [{m},0,0] Assertion `t >= 0` failed."],
    # tests and benchmarks
    "pytest": ["tests/test_loss.py::test_step_{n} PASSED            [ {n}%]"],
    "pytest durations": ["{x}s call     tests/test_epoch.py::test_batch_{n}"],
    "unittest": ["test_accuracy_step_{n} (test_loss.Case) ... ok", "Ran {n} tests in {x}s"],
    "go test": ["--- PASS: TestLossStep{n} ({x}s)"],
    "benchmark": ["matmul_{m}: {x} TFLOP/s, {n} repetitions, error bound 1e-3"],
    "all_reduce_perf": ["     {m}         {m}     float     sum      -1    {x}    0.00    0.00      0    {x}"],
    "warm-up": ["warm-up {n} took {x} s"],
    # settings and summaries
    "arguments": ["max_steps=1000 lr=0.1 batch_size={n} loss=mse warmup_steps={n}"],
    "arguments over lines": ["epochs: 10", "steps: 1000", "loss: mse", "loss_weight: 0.5", "batch_size: {n}"],
    "dots": ["  max_steps ............ 1000", "  loss_scale ........... {x}", "  train_iters .......... 500000"],
    "one-line settings": ["steps: 1000, loss: mse, lr: {x}, epochs: 3"],
    "number of loss": ["steps: 1000, loss: 0.5, warmup: {n}"],
    "deepspeed settings": [
        "[2026-01-01 00:00:00,123] [INFO] [config.py:{m}:print]   loss_scale ......... {x}",
        "[2026-01-01 00:00:00,123] [INFO] [config.py:{m}:print]   steps_per_print .... 10",
    ],
    "json settings": ['{{"max_steps": 1000, "loss": "mse", "lr": {x}, "batch": {n}}}'],
    "trainer banner": ["***** Running training *****", "  Num Epochs = 3", "  Total optimization steps = {m}"],
    "optimizer": ["Optimizer AdamW group {n}: lr: {x}, weight_decay: 0.1, step: 0"],
    "model summary": ["  layer{n}.conv1 | Conv2d | {m} | {x} M params"],
    "torchinfo": ["├─Linear: 1-{n}                [8, {m}]               {m},{m}"],
    "parameter count": ["number of parameters: {m}.{n}M", "num decayed parameter tensors: {n}, with {m} parameters"],
    "checkpoint": ["Saved checkpoint at step {n} to /runs/x/step-{n}.pt in {x} s"],
    "loading": ["Loading weights: layer {n} of 96, {x} GB"],
    "early stop": ["early stopping patience {n} of 10, best loss so far 0.5"],
    # evaluation and inference
    "evaluation bar": ["Evaluating:  10%|█         | {n}/100 [00:01<00:09,  9.9it/s, loss={x}]"],
    "validation bar": ["Validation DataLoader 0:  10%|█    | {n}/100 [00:01<00:09,  9.9it/s, val_loss={x}]"],
    "test batches": ["Test: [{n}/100]\tTime 0.1 (0.1)\tLoss {x} (2.3)\tAcc@1 71.2 (70.1)"],
    "evaluation steps": ["eval step {n}: loss {x}"],
    "validation lines": ["[valid] batch {n} | loss {x} | accuracy 0.5"],
    "inference": ["Predicting: batch {n}, score {x}"],
    "evaluation result": ["{{'eval_loss': {x}, 'eval_runtime': 3.2, 'eval_samples_per_second': {n}.0}}"],
    "lm-eval": ["|arc_easy|      {n}|none  |     0|acc     |↑  |{x}|±  |0.0100|"],
    "generation": ["sample {n}: the loss of the battle, step by step, {x}"],
    "requests": ["Processed prompts:  10%|█     | {n}/100 [00:01<00:09,  {x}it/s, est. speed output: 99.1 toks/s]"],
    # prose and other numbers
    "prose": ["This is step {n} of our guide; a loss of {n} percent is usual in batch mode."],
    "versions": ["torch 2.{n}.0, cuda 12.{n}, driver 550.{m}"],
    "checksums": ["3f{m}e0{n}a1  train/step-{n}.bin"],
    "ls": ["-rw-r--r-- 1 root root {m} Jan  {n} 00:00 loss_{n}.pt"],
    "numbers": ["{n} {x} {m}"],
    "ranks": ["{n}: initialized with loss {x}"],
    "worker ranks": ["[{n}]: ready, error {x}"],
    "clock": ["00:00:0{n} waiting for nodes, {n} of 9 ready ({x})"],
    "cost": ["cost so far ${x} after {n} minutes"],
    "queue": ["queue position {n}, batch queue, estimated wait {x} s"],
}  # fmt: skip

PREFIXES = ("", "2026-01-01 00:00:0{k},123 - INFO - ", "[rank0]: ")


def silent_logs() -> Iterator[tuple[str, list[str]]]:
    """Name and lines of each log."""
    for name, kind in KINDS.items():
        for prefix in PREFIXES:
            log = [
                prefix.format(k=k) + line.format(n=k, x=round(9.7 / (k + 1), 4), m=k * 137)
                for k in range(1, 8)
                for line in kind
            ]
            yield f"{name}, {prefix[:7]!r}", log
