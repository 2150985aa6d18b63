"""A second set of ends of programs, made after the rules were written for the first one: reductions of our own."""

from __future__ import annotations

import json

from tests.unit.failures.failed_programs import LIB, FailedProgram

PROGRAMS = [
    FailedProgram(
        name="Horovod's time before the number of a rank",
        log="""\
Fri Nov 27 09:00:00 2026[1]<stderr>:Traceback (most recent call last):
Fri Nov 27 09:00:00 2026[0]<stdout>:step 3 loss 1.0
Fri Nov 27 09:00:00 2026[1]<stderr>:  File "/code/hvd.py", line 8, in <module>
Fri Nov 27 09:00:00 2026[1]<stderr>:    x.backward(1)
Fri Nov 27 09:00:00 2026[1]<stderr>:TypeError: backward() takes no argument
""",
        place="hvd.py:8",
        shows=("TypeError: backward()", "x.backward(1)"),
        hides=("step 3",),
        rank=1,
    ),
    FailedProgram(
        name="accelerate's defaults, and a message of pydantic",
        log=f"""\
The following values were not passed to `accelerate launch` and had defaults used instead:
\t`--num_processes` was set to a value of `2`
\t`--mixed_precision` was set to a value of `'no'`
To avoid this warning pass in values for each of the problematic parameters or run `accelerate config`.
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/code/tune/train.py", line 21, in <module>
    settings = Settings(**document)
  File "{LIB}/pydantic/main.py", line 171, in __init__
    self.__pydantic_validator__.validate_python(data, self_instance=self)
pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings
batch_size
  Input should be a valid integer [type=int_parsing, input_value='x', input_type=str]
    For further information visit https://errors.pydantic.dev/2.6/v/int_parsing
""",
        place="train.py:21",
        shows=("1 validation error for Settings", "batch_size", "Input should be a valid integer"),
        hides=("accelerate config",),
    ),
    FailedProgram(
        name="the long message of an XLA error",
        log="".join(
            [
                f"""\
Traceback (most recent call last):
  File "/code/jax_fit.py", line 44, in <module>
    state = update(state, batch)
  File "{LIB}/jax/_src/dispatch.py", line 895, in _execute_compiled
    out_flat = compiled.execute(in_flat)
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes.
BufferAssignment OOM Debugging.
""",
                *(f"        Buffer {n}:\n                Size: 6.00MiB\n" for n in range(40)),
            ]
        ),
        place="jax_fit.py:44",
        shows=("RESOURCE_EXHAUSTED: Out of memory",),
        hides=("Buffer 20",),
    ),
    FailedProgram(
        name="JAX without its own frames",
        log=f"""\
jax.errors.SimplifiedTraceback: For simplicity, JAX has removed its internal frames from the traceback.

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/code/flax_fit.py", line 12, in <module>
    loss = jnp.dot(a, b)
  File "{LIB}/jax/_src/numpy/lax_numpy.py", line 1, in dot
    return lax.dot_general(a, b)
TypeError: dot_general requires contracting dimensions to have the same shape, got (3,) and (4,).
--------------------
For simplicity, JAX has removed its internal frames from the traceback of the following exception.
""",
        place="flax_fit.py:12",
        shows=("TypeError: dot_general requires",),
    ),
    FailedProgram(
        name="Hydra's words around a short traceback",
        log="""\
[2026-11-27 09:00:00,100][src.fit][INFO] - Instantiating model
Error executing job with overrides: ['model=big']
Traceback (most recent call last):
  File "/code/src/fit.py", line 31, in main
    model = build(cfg.model.widht)
omegaconf.errors.ConfigAttributeError: Key 'widht' is not in struct
    full_key: model.widht
    object_type=dict

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
""",
        place="fit.py:31",
        shows=("ConfigAttributeError: Key 'widht'", "full_key: model.widht"),
    ),
    FailedProgram(
        name="MPICH's banner behind a signal",
        log="""\
step 4 loss 0.5
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
""",
        exit_code=9,
        shows=("step 4 loss 0.5",),
        hides=("BAD TERMINATION", "CLEANUP"),
    ),
    FailedProgram(
        name="a worker of Ray behind its process number",
        log=f"""\
(RayTrainWorker pid=412, ip=10.0.3.4) Traceback (most recent call last):
(RayTrainWorker pid=412, ip=10.0.3.4)   File "{LIB}/ray/train/_internal/utils.py", line 118, in wrapper
(RayTrainWorker pid=412, ip=10.0.3.4)     train_func(*args, **kwargs)
(RayTrainWorker pid=412, ip=10.0.3.4)   File "/code/ray_fit.py", line 52, in train_func
(RayTrainWorker pid=412, ip=10.0.3.4)     shard = shards[rank]
(RayTrainWorker pid=412, ip=10.0.3.4) IndexError: list index out of range
(RayTrainWorker pid=413, ip=10.0.3.5) epoch 1
""",
        place="ray_fit.py:52",
        shows=("IndexError: list index out of range", "shard = shards[rank]"),
        hides=("epoch 1",),
    ),
    FailedProgram(
        name="the remote traceback of a pool",
        log="""\
multiprocessing.pool.RemoteTraceback:
\"\"\"
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker
    result = (True, func(*args, **kwds))
  File "/code/tokens.py", line 17, in encode
    return table[word]
KeyError: 'zebra'
\"\"\"

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/code/fit.py", line 40, in <module>
    rows = pool.map(encode, words)
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 774, in get
    raise self._value
KeyError: 'zebra'
""",
        place="tokens.py:17",
        shows=("KeyError: 'zebra'", "return table[word]"),
    ),
    FailedProgram(
        name="a traceback on the line of a progress bar",
        log="""\
  0%|          | 0/4878 [00:00<?, ?it/s]Traceback (most recent call last):
  File "/code/smpl.py", line 213, in main
    mp.spawn(worker, nprocs=n)
NameError: name 'n' is not defined
""",
        place="smpl.py:213",
        shows=("NameError: name 'n'",),
    ),
    FailedProgram(
        name="an assertion on a device",
        log=f"""\
/pytorch/aten/src/ATen/cuda/Loss.cu:242: nll_loss: block: [0,0,0], thread: [5,0,0] Assertion `t >= 0` failed.
Traceback (most recent call last):
  File "/code/fit.py", line 61, in <module>
    loss = criterion(out, labels)
  File "{LIB}/torch/nn/functional.py", line 3100, in cross_entropy
    return torch._C._nn.cross_entropy_loss(input, target)
RuntimeError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
""",
        place="fit.py:61",
        shows=("device-side assert triggered",),
    ),
    FailedProgram(
        name="Open MPI's report of a segmentation fault",
        log="""\
[node-1:01234] *** Process received signal ***
[node-1:01234] Signal: Segmentation fault (11)
[node-1:01234] Signal code: Address not mapped (1)
[node-1:01234] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x43090)[0x7f3f2a]
[node-1:01234] [ 1] /code/build/libops.so(fused_step+0x42)[0x7f3f2b]
[node-1:01234] *** End of error message ***
""",
        exit_code=139,
        shows=("Signal: Segmentation fault (11)",),
    ),
    FailedProgram(
        name="click refuses an option",
        log="""\
Usage: fit.py [OPTIONS]
Try 'fit.py --help' for help.

Error: No such option: --lrr Did you mean --lr?
""",
        exit_code=2,
        shows=("No such option: --lrr",),
    ),
    FailedProgram(
        name="Python does not find the program",
        log="python: can't open file '/code/trian.py': [Errno 2] No such file or directory\n",
        exit_code=2,
        shows=("can't open file '/code/trian.py'",),
    ),
    FailedProgram(
        name="a shell does not find a command",
        log="+ cd /code\n+ pyhton fit.py\nrun.sh: line 3: pyhton: command not found\n",
        exit_code=127,
        shows=("pyhton: command not found",),
    ),
    FailedProgram(
        name="a program says why and exits",
        log="reading settings\nfit: the data set has no split 'train'\n",
        shows=("the data set has no split 'train'",),
    ),
    FailedProgram(
        name="a library that does not load",
        log="python3: symbol lookup error: /code/libops.so: undefined symbol: ncclCommSplit\n",
        exit_code=127,
        shows=("undefined symbol: ncclCommSplit",),
    ),
    FailedProgram(
        name="loguru's traceback with values",
        log="""\
2026-11-27 09:00:00.123 | ERROR    | __main__:main:40 - An error has been caught in function 'main'
Traceback (most recent call last):

> File "/code/detect.py", line 40, in main
    train(cfg)
    │     └ {'lr': 0.1}
    └ <function train at 0x7fdd8b3a83a0>

  File "/code/engine.py", line 12, in train
    return 1 / cfg["n"]
               └ {'lr': 0.1}

KeyError: 'n'
""",
        place="engine.py:12",
        shows=("KeyError: 'n'",),
    ),
    FailedProgram(
        name="axolotl's wrapper around accelerate's",
        log=f"""\
Traceback (most recent call last):
  File "/code/custom.py", line 5, in collate
    raise ValueError("no labels")
ValueError: no labels
Traceback (most recent call last):
  File "{LIB}/accelerate/commands/launch.py", line 785, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['python', '-m', 'axolotl.cli.train']' returned non-zero exit status 1.
Traceback (most recent call last):
  File "/opt/conda/bin/axolotl", line 8, in <module>
    sys.exit(main())
  File "/usr/lib/python3.11/subprocess.py", line 571, in run
    raise CalledProcessError(retcode, process.args)
subprocess.CalledProcessError: Command '['accelerate', 'launch']' returned non-zero exit status 1.
""",
        place="custom.py:5",
        shows=("ValueError: no labels",),
        hides=("CalledProcessError",),
    ),
    FailedProgram(
        name="Lightning ends the other processes",
        log=f"""\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/code/lit.py", line 30, in training_step
[rank1]:     return self.net(batch["image"])
[rank1]:   File "{LIB}/torch/nn/modules/conv.py", line 1, in forward
[rank1]:     return F.conv2d(input)
[rank1]: RuntimeError: Given groups=1, expected input to have 3 channels, but got 1 channels instead
[rank: 1] Child process with PID 123 terminated with code 1. Forcefully terminating all other processes to avoid zombies
""",
        place="lit.py:30",
        shows=("expected input to have 3 channels",),
        rank=1,
    ),
    FailedProgram(
        name="a service logs in JSON",
        log=json.dumps({"level": "info", "message": "step 3"})
        + "\n"
        + json.dumps(
            {
                "level": "error",
                "message": "failed",
                "exc_info": 'Traceback (most recent call last):\n  File "/code/svc.py", line 9\nValueError: no route',
            }
        ),
        place="svc.py:9",
        shows=("ValueError: no route",),
    ),
    FailedProgram(
        name="glibc's backtrace of a corrupted heap",
        log="""\
*** Error in `python3': munmap_chunk(): invalid pointer: 0x0000555560e2b570 ***
======= Backtrace: =========
/lib64/libc.so.6(+0x7f574)[0x2aaaaaf6a574]
/usr/lib64/libcuda.so.1(+0x20de81)[0x2aab7db59e81]
======= Memory map: ========
200000000-200200000 rw-s 00000000 00:05 65902                            /dev/nvidiactl
""",
        exit_code=134,
        shows=("munmap_chunk(): invalid pointer",),
    ),
    FailedProgram(
        name="a notebook's traceback",
        log=f"""\
---------------------------------------------------------------------------
ValueError                                Traceback (most recent call last)
File /code/notebook_fit.py:164, in main(cfg)
    162 x = 3
--> 164 run(cfg)

File {LIB}/lib/runner.py:74, in run(cfg)
     72 y = 1
---> 74 raise ValueError("no cfg")

ValueError: no cfg
""",
        place="notebook_fit.py:164",
        shows=("ValueError: no cfg",),
    ),
]
