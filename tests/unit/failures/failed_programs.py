"""Ends of programs that fail in the ways of many frameworks: reductions of our own, after logs in public issues.

Each has the lines of a pod's log, the pod's exit code, and what a person has to see of them.
"""

from __future__ import annotations

from dataclasses import dataclass

LIB = "/opt/conda/lib/python3.11/site-packages"


@dataclass(frozen=True, kw_only=True)
class FailedProgram:
    name: str
    log: str
    exit_code: int = 1
    place: str = ""
    """File and line that the excerpt has to name."""
    shows: tuple[str, ...] = ()
    """Texts that the excerpt has to have."""
    hides: tuple[str, ...] = ()
    """Texts that it may not have."""
    rank: int | None = None


OMP = """\
W1127 09:00:00.100000 77 torch/distributed/run.py:774]
W1127 09:00:00.100000 77 torch/distributed/run.py:774] *****************************************
W1127 09:00:00.100000 77 torch/distributed/run.py:774] Setting OMP_NUM_THREADS environment variable to 1.
W1127 09:00:00.100000 77 torch/distributed/run.py:774] *****************************************
"""


def elastic_report(failed: int, *, others: tuple[tuple[int, int], ...] = (), code: int = 1) -> str:
    """torchrun's report about ranks that failed."""
    listed = "".join(
        f"[{number}]:\n  time      : 2026-11-27_09:00:09\n  host      : node\n"
        f"  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {other} (pid: 9{rank})\n  error_file: <N/A>\n  traceback : "
        f"{'Signal 15 (SIGTERM) received by PID 90' if other == -15 else 'To enable traceback see'}\n"
        for number, (rank, other) in enumerate(others, 1)
    )
    return f"""\
W1127 09:00:09.500000 77 torch/distributed/elastic/m/api.py:900] Sending process 90 closing signal SIGTERM
E1127 09:00:09.7 77 torch/distributed/elastic/m/api.py:874] failed (exitcode: {code}) local_rank: {failed}
Traceback (most recent call last):
  File "/opt/conda/bin/torchrun", line 7, in <module>
    sys.exit(main())
  File "{LIB}/torch/distributed/run.py", line 936, in main
    run(args)
  File "{LIB}/torch/distributed/launcher/api.py", line 277, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
fit.py FAILED
------------------------------------------------------------
Failures:
{listed or "  <NO_OTHER_FAILURES>"}
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-27_09:00:09
  host      : node
  rank      : {failed} (local_rank: {failed})
  exitcode  : {code} (pid: 91)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


PROGRAMS = [
    FailedProgram(
        name="rank 1 raises, rank 0 loses it, torchrun reports",
        log=f"""{OMP}step 10 loss 0.5
Traceback (most recent call last):
  File "/code/fit.py", line 60, in <module>
    main()
  File "/code/fit.py", line 36, in main
    raise ValueError("bad batch")
ValueError: bad batch
[rank0]: Traceback (most recent call last):
[rank0]:   File "/code/fit.py", line 60, in <module>
[rank0]:     main()
[rank0]:   File "/code/fit.py", line 41, in main
[rank0]:     dist.all_reduce(x)
[rank0]:   File "{LIB}/torch/distributed/distributed_c10d.py", line 3000, in all_reduce
[rank0]:     work.wait()
[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:40000
[rank0]: This may be because the peer crashed before reporting an error. GLHF!
{elastic_report(1, others=((0, -15),))}""",
        place="fit.py:36",
        shows=("ValueError: bad batch", 'raise ValueError("bad batch")'),
        hides=("GLHF", "OMP_NUM_THREADS", "ChildFailedError", "SIGTERM"),
        rank=1,
    ),
    FailedProgram(
        name="both ranks print with their numbers, mixed line by line",
        log="""\
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "/code/model.py", line 9, in forward
[rank0]:   File "/code/fit.py", line 41, in main
[rank1]:     return self.table[tokens]
[rank0]:     dist.barrier()
[rank1]: IndexError: index 50300 is out of bounds
[rank0]: RuntimeError: Connection reset by peer
""",
        place="model.py:9",
        shows=("IndexError: index 50300",),
        hides=("barrier", "reset by peer"),
        rank=1,
    ),
    FailedProgram(
        name="an exception while another one is handled",
        log="""\
Traceback (most recent call last):
  File "/code/data.py", line 5, in load
    return cache["train"]
KeyError: 'train'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/code/fit.py", line 12, in <module>
    load()
  File "/code/data.py", line 7, in load
    raise RuntimeError("the cache has no split train")
RuntimeError: the cache has no split train
""",
        place="data.py:7",
        shows=("KeyError: 'train'", "During handling", "RuntimeError: the cache"),
    ),
    FailedProgram(
        name="an exception raised from its cause",
        log=f"""\
Traceback (most recent call last):
  File "{LIB}/yaml/reader.py", line 30, in read
    raise ReaderError("control characters")
yaml.reader.ReaderError: control characters are not allowed

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/code/pkg/__main__.py", line 3, in <module>
    run()
  File "/code/pkg/settings.py", line 18, in run
    raise SettingsError("settings.yaml cannot be read") from error
pkg.settings.SettingsError: settings.yaml cannot be read
""",
        place="settings.py:18",
        shows=("ReaderError: control", "direct cause", "SettingsError: settings.yaml"),
    ),
    FailedProgram(
        name="a worker of a data loader",
        log=f"""\
Epoch 1:  40%|████      | 40/100 [00:10<00:15,  3.9it/s]
Traceback (most recent call last):
  File "/code/fit.py", line 50, in <module>
    for batch in loader:
  File "{LIB}/torch/utils/data/dataloader.py", line 732, in __next__
    data = self._next_data()
  File "{LIB}/torch/utils/data/dataloader.py", line 1506, in _process_data
    data.reraise()
  File "{LIB}/torch/_utils.py", line 750, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "{LIB}/torch/utils/data/_utils/worker.py", line 349, in _worker_loop
    data = fetcher.fetch(index)
  File "{LIB}/torch/utils/data/_utils/fetch.py", line 52, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
  File "/code/images.py", line 22, in __getitem__
    return self.decode(raw)
ValueError: buffer size must be a multiple of element size

""",
        place="images.py:22",
        shows=("Caught ValueError in DataLoader worker process 0", "return self.decode(raw)", "buffer size must be"),
        hides=("_next_data", "possibly_batched_index"),
    ),
    FailedProgram(
        name="a spawned process",
        log=f"""\
Traceback (most recent call last):
  File "/code/dist_fit.py", line 90, in <module>
    mp.spawn(worker, nprocs=4)
  File "{LIB}/torch/multiprocessing/spawn.py", line 340, in spawn
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
  File "{LIB}/torch/multiprocessing/spawn.py", line 215, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 2 terminated with the following error:
Traceback (most recent call last):
  File "{LIB}/torch/multiprocessing/spawn.py", line 90, in _wrap
    fn(i, *args)
  File "/code/dist_fit.py", line 31, in worker
    assert batch % world == 0, "uneven batch"
AssertionError: uneven batch

""",
        place="dist_fit.py:31",
        shows=("Process 2 terminated", "AssertionError: uneven batch"),
    ),
    FailedProgram(
        name="a group of exceptions",
        log="""\
  + Exception Group Traceback (most recent call last):
  |   File "/code/fetch.py", line 14, in main
  |     async with asyncio.TaskGroup() as group:
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/code/fetch.py", line 8, in shard
    |     raise KeyError(name)
    | KeyError: 'shard-7'
    +------------------------------------
""",
        place="fetch.py:8",
        shows=("KeyError: 'shard-7'",),
    ),
    FailedProgram(
        name="Rich's traceback under accelerate",
        log=f"""\
╭─────────────────────────────── Traceback (most recent call last) ────────────────────────────────╮
│ /code/tune.py:88 in main                                                                         │
│                                                                                                  │
│    86 │   │   │   # the labels                                                                   │
│ ❱  88 │   │   │   loss = criterion(out, batch["labels"])                                         │
│    89 │   │   │   loss.backward()                                                                │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯
KeyError: 'labels'
Traceback (most recent call last):
  File "/opt/conda/bin/accelerate", line 8, in <module>
    sys.exit(main())
  File "{LIB}/accelerate/commands/accelerate_cli.py", line 50, in main
    args.func(args)
  File "{LIB}/accelerate/commands/launch.py", line 764, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['/opt/conda/bin/python', 'tune.py']' returned non-zero exit status 1.
""",
        place="tune.py:88",
        shows=("KeyError: 'labels'", 'criterion(out, batch["labels"])'),
        hides=("CalledProcessError", "simple_launcher"),
    ),
    FailedProgram(
        name="wrong arguments",
        log="""\
usage: fit.py [-h] [--lr LR]
fit.py: error: unrecognized arguments: --learning-rate 0.1
""",
        exit_code=2,
        shows=("usage: fit.py", "unrecognized arguments: --learning-rate 0.1"),
    ),
    FailedProgram(
        name="a C++ exception",
        log="""\
step 4 loss 1.25
terminate called after throwing an instance of 'c10::Error'
  what():  CUDA error: an illegal memory access was encountered
Exception raised from insert_events at /pytorch/c10/cuda/CUDACachingAllocator.cpp:717 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x42 (0x7f14 in /usr/lib/libc10.so)
frame #1: c10::cuda::CUDACachingAllocator::raw_delete(void*) + 0x1070 (0x7f14 in /usr/lib/libc10_cuda.so)
frame #2: <unknown function> + 0x5fd902 (0x7f15 in /usr/lib/libtorch_python.so)
""",
        exit_code=134,
        shows=("illegal memory access",),
        hides=("raw_delete", "frame #1"),
    ),
    FailedProgram(
        name="faulthandler's stacks of a segmentation fault",
        log=f"""\
Fatal Python error: Segmentation fault

Thread 0x00007f9b32efe700 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait

Current thread 0x00007fcd7a1e3740 (most recent call first):
  File "{LIB}/fastops/kernels.py", line 119 in fused
  File "/code/net.py", line 78 in forward
  File "/code/fit.py", line 12 in <module>

Extension modules: numpy.core._multiarray_umath, torch._C (total: 2)
""",
        exit_code=139,
        place="net.py:78",
        shows=("Segmentation fault", "net.py"),
        hides=("Extension modules", "threading.py"),
    ),
    FailedProgram(
        name="a panic of Rust below Python",
        log="""\
thread '<unnamed>' panicked at src/tokenizer.rs:47:38:
called `Result::unwrap()` on an `Err` value: InvalidVocabulary
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
Traceback (most recent call last):
  File "/code/encode.py", line 9, in <module>
    tok.encode(text)
pyo3_runtime.PanicException: called `Result::unwrap()` on an `Err` value: InvalidVocabulary
""",
        place="encode.py:9",
        shows=("PanicException: called", "encode.py"),
    ),
    FailedProgram(
        name="a panic of a Rust program",
        log="""\
loaded 10 shards
thread 'main' panicked at src/main.rs:81:49:
index out of bounds: the len is 4 but the index is 4
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
""",
        exit_code=101,
        place="main.rs:81",
        shows=("panicked at src/main.rs:81:49", "index out of bounds"),
    ),
    FailedProgram(
        name="an exception of Java",
        log="""\
Exception in thread "main" java.lang.IllegalStateException: no executor for split 3
\tat org.apache.spark.rdd.RDD.iterator(RDD.scala:331)
\tat com.acme.Train.fold(Train.java:52)
\tat com.acme.Train.main(Train.java:11)
Caused by: java.lang.NullPointerException: vectors
\tat com.acme.Vectors.read(Vectors.java:7)
\t... 3 more
""",
        shows=("no executor for split 3", "Caused by"),
        place="Vectors.java:7",
    ),
    FailedProgram(
        name="a panic of Go",
        log="""\
panic: runtime error: index out of range [3] with length 3

goroutine 1 [running]:
main.step(...)
\t/src/train/main.go:12
main.main()
\t/src/train/main.go:30 +0x1d
exit status 2
""",
        exit_code=2,
        shows=("panic: runtime error: index out of range",),
    ),
    FailedProgram(
        name="mpirun's banners behind a rank's exception",
        log="""\
[1,1]<stderr>:Traceback (most recent call last):
[1,1]<stderr>:  File "/code/hvd_fit.py", line 20, in <module>
[1,1]<stderr>:    lr = float(cfg["lr"])
[1,1]<stderr>:ValueError: could not convert string to float: '1e-3,'
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[1888,1],1]
  Exit code:    1
--------------------------------------------------------------------------
""",
        place="hvd_fit.py:20",
        shows=("ValueError: could not convert",),
        hides=("mpirun", "Primary job"),
        rank=1,
    ),
    FailedProgram(
        name="DeepSpeed kills the other processes",
        log="""\
[2026-11-27 09:00:00,100] [INFO] [launch.py:100:main] dist_world_size=2
Traceback (most recent call last):
  File "train_ds.py", line 14, in <module>
    engine.step(batch)
NameError: name 'engine' is not defined
[2026-11-27 09:00:05,100] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 3353707
[2026-11-27 09:00:05,200] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train_ds.py'] exits with return code = 1
""",
        place="train_ds.py:14",
        shows=("NameError: name 'engine'",),
        hides=("sigkill_handler",),
    ),
    FailedProgram(
        name="srun's report behind a task's exception",
        log="""\
0: step 3 loss 2.0
1: Traceback (most recent call last):
1:   File "/code/fit.py", line 77, in <module>
1:     x = y[3]
1: IndexError: list index out of range
srun: error: node-2: task 1: Exited with exit code 1
srun: Terminating StepId=123.0
slurmstepd: error: *** STEP 123.0 ON node-1 CANCELLED AT 2026-11-27T09:00:00 ***
""",
        place="fit.py:77",
        shows=("IndexError: list index",),
        hides=("srun", "slurmstepd"),
        rank=1,
    ),
    FailedProgram(
        name="a file that cannot be parsed",
        log="""\
Traceback (most recent call last):
  File "/usr/lib/python3.11/runpy.py", line 198, in _run_module_as_main
    return _run_code(code, main_globals, None,
  File "/code/fit.py", line 9
    if x = 3:
       ^^^^^
SyntaxError: invalid syntax. Maybe you meant '==' or ':=' instead of '='?
""",
        place="fit.py:9",
        shows=("if x = 3:", "SyntaxError: invalid syntax"),
    ),
    FailedProgram(
        name="killed without a word",
        log="loaded 10 shards\nstep 1 loss 2.5\nstep 2 loss 2.4\n",
        exit_code=137,
        shows=("step 2 loss 2.4",),
    ),
    FailedProgram(name="nothing printed", log="", exit_code=137),
    FailedProgram(
        name="a logger prints the traceback",
        log="""\
2026-11-27 09:00:00,123 - trainer - ERROR - training failed
Traceback (most recent call last):
  File "/code/loop.py", line 44, in run
    self.check(batch)
  File "/code/checks.py", line 6, in check
    raise BatchError("3 rows in place of 4")
checks.BatchError: 3 rows in place of 4
2026-11-27 09:00:00,200 - trainer - INFO - closing
""",
        place="checks.py:6",
        shows=("BatchError: 3 rows",),
        hides=("closing",),
    ),
    FailedProgram(
        name="a task of Ray",
        log=f"""\
Traceback (most recent call last):
  File "/code/main.py", line 30, in <module>
    ray.get(refs)
  File "{LIB}/ray/_private/worker.py", line 2700, in get
    raise value.as_instanceof_cause()
ray.exceptions.RayTaskError(ValueError): \x1b[36mray::fit()\x1b[39m (pid=4412, ip=10.0.3.4)
  File "/code/worker.py", line 12, in fit
    raise ValueError("no shards")
ValueError: no shards
""",
        place="worker.py:12",
        shows=("ValueError: no shards",),
    ),
]
