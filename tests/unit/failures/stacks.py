"""Recorded stacks of ranks, reduced to the calls that matter, with what has to be named."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainflow.failures.standstill import Wait
from trainflow.protocol.stacks import Frame, Group, NodeStacks, parse_stacks_line, stacks_line

Thread = tuple[Frame, ...]


def frames(*calls: str) -> Thread:
    """Calls of a stack, each as `file:line function text`."""
    return tuple(_frame(*call.split(" ", 2)) for call in calls)


def _frame(place: str, function: str, text: str = "") -> Frame:
    file, _, line = place.rpartition(":")
    return Frame(file=file, line=int(line), function=function, text=text)


MAIN = "train.py:31 main dist.all_reduce(loss)"
C10D = "site-packages/torch/distributed/distributed_c10d.py"
WRAPPER = "site-packages/torch/distributed/c10d_logger.py:83 wrapper"
COLLECTIVES: dict[str, tuple[Thread, str]] = {
    "gloo or NCCL": (frames(f"{C10D}:3252 all_reduce", WRAPPER, MAIN), "all_reduce"),
    "a barrier": (frames(f"{C10D}:5110 barrier", WRAPPER, MAIN), "barrier"),
    "DDP": (
        frames(
            "site-packages/torch/autograd/graph.py:869 _engine_run_backward",
            "site-packages/torch/autograd/__init__.py:365 backward",
            "train.py:31 main loss.backward()",
        ),
        "the backward pass",
    ),
    "DDP's buffers": (
        frames("site-packages/torch/nn/parallel/distributed.py:2153 _sync_buffers", "train.py:31 main model(x)"),
        "_sync_buffers",
    ),
    "FSDP": (
        frames(
            f"{C10D}:4131 all_gather_into_tensor",
            "site-packages/torch/distributed/fsdp/_flat_param.py:1478 _all_gather_flat_param",
            "train.py:31 main model(x)",
        ),
        "all_gather_into_tensor",
    ),
    "a key of the store": (frames("train.py:31 main self.store.wait([key])"), "a pending operation"),
    "an asynchronous operation": (frames("train.py:31 main work.wait()"), "a pending operation"),
    "PyTorch/XLA": (
        frames("site-packages/torch_xla/core/xla_model.py:1060 mark_step", "train.py:31 main xm.mark_step()"),
        "mark_step",
    ),
    "the rendezvous": (
        frames("dist-packages/torch/distributed/rendezvous.py:278 _env_rendezvous_handler", MAIN),
        "_env_rendezvous_handler",
    ),
}
WAITS_FOR_OTHERS = Group(ranks=(), kernel="futex_do_wait", threads=(COLLECTIVES["gloo or NCCL"][0],))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A rank that is behind, with what has to be named."""

    wait: Wait
    place: str
    group: Group


def case(
    wait: Wait,
    place: str,
    *threads: Thread,
    kernel: str = "futex_do_wait",
    path: str = "",
    state: str = "S",
    dead: int = 0,
) -> Case:
    group = Group(ranks=(), state=state, kernel=kernel, path=path, dead_children=dead, threads=threads)
    return Case(wait=wait, place=place, group=group)


CONNECTION = (
    "python3.11/multiprocessing/connection.py:395 _recv",
    "python3.11/multiprocessing/connection.py:216 recv_bytes",
)
BEHIND: dict[str, Case] = {
    "sleeps": case(
        Wait.SLEEP,
        "train.py:20 in rest: time.sleep(3600)",
        frames("train.py:20 rest time.sleep(3600)", "train.py:30 main rest()"),
        kernel="hrtimer_nanosleep",
    ),
    "sleeps, and the source is gone": case(
        Wait.SLEEP, "train.py:20 in main", frames("train.py:20 main"), kernel="hrtimer_nanosleep"
    ),
    "two locks": case(
        Wait.DEADLOCK,
        "train.py:22 in step: with self._model:",
        frames("train.py:22 step with self._model:", MAIN),
        frames("loader.py:8 refill with self._items:", "python3.11/threading.py:982 run"),
    ),
    "two locks, by acquire": case(
        Wait.DEADLOCK,
        "train.py:22 in step: b.acquire()",
        frames("train.py:22 step b.acquire()", MAIN),
        frames("train.py:9 other a.acquire(timeout=-1)", "python3.12/threading.py:1012 run"),
    ),
    "a thread that does not end": case(
        Wait.LOCK,
        "train.py:23 in step: writer.join()",
        frames("python3.11/threading.py:1119 join", "train.py:23 step writer.join()"),
        frames("train.py:9 other time.sleep(1)", "python3.11/threading.py:982 run"),
    ),
    "a named pipe": case(
        Wait.STORAGE,
        'train.py:24 in step: open("/runs/x").read()',
        frames('train.py:24 step open("/runs/x").read()', MAIN),
        kernel="anon_pipe_read",
        path="/runs/x",
    ),
    "storage that does not answer": case(Wait.STORAGE, "", kernel="rpc_wait_bit_killable", state="D"),
    "NFS, and the kernel says so": case(
        Wait.STORAGE,
        "data.py:5 in sample: return fetch(path)",
        frames("data.py:5 sample return fetch(path)", MAIN),
        kernel="nfs_wait_bit_killable",
    ),
    "storage, and the kernel is hidden": case(
        Wait.STORAGE,
        "train.py:25 in save: torch.save(state, path)",
        frames("site-packages/torch/serialization.py:850 _save", "train.py:25 save torch.save(state, path)"),
        kernel="",
        path="/runs/a/step.pt",
    ),
    "a data loader whose worker was killed": case(
        Wait.QUEUE_OF_DEAD,
        "train.py:26 in main: for batch in loader:",
        frames(
            "python3.11/threading.py:331 wait",
            "python3.11/queue.py:180 get",
            "site-packages/torch/utils/data/dataloader.py:1275 _try_get_data",
            "train.py:26 main for batch in loader:",
        ),
        dead=1,
    ),
    "a queue of a process that was killed": case(
        Wait.QUEUE_OF_DEAD,
        "train.py:26 in main: batch = batches.get()",
        frames(*CONNECTION, "python3.11/multiprocessing/queues.py:103 get", "train.py:26 main batch = batches.get()"),
        kernel="anon_pipe_read",
        dead=2,
    ),
    "a pipe to a process that was killed": case(
        Wait.QUEUE_OF_DEAD,
        "train.py:26 in main: pipe.recv()",
        frames(*CONNECTION, "train.py:26 main pipe.recv()"),
        kernel="anon_pipe_read",
        dead=1,
    ),
    "a queue that nobody fills": case(
        Wait.QUEUE,
        "train.py:26 in main: batch = batches.get()",
        frames("python3.11/queue.py:171 get", "train.py:26 main batch = batches.get()"),
    ),
    "an event of another thread": case(
        Wait.LOCK,
        "train.py:27 in main: ready.wait()",
        frames("python3.11/threading.py:327 wait", "python3.11/threading.py:629 wait", "train.py:27 main ready.wait()"),
    ),
    "a lock of a library": case(
        Wait.LOCK,
        'train.py:27 in main: logging.warning("x")',
        frames(
            "python3.11/logging/__init__.py:952 acquire",
            "python3.11/logging/__init__.py:970 handle",
            'train.py:27 main logging.warning("x")',
        ),
    ),
    "an answer of a server": case(
        Wait.CONNECTION,
        "train.py:27 in main: urlopen(url).read()",
        frames("python3.11/socket.py:706 readinto", "train.py:27 main urlopen(url).read()"),
        kernel="wait_woken",
    ),
    "a lock of a file": case(
        Wait.STORAGE,
        "train.py:27 in main: fcntl.flock(file, fcntl.LOCK_EX)",
        frames("train.py:27 main fcntl.flock(file, fcntl.LOCK_EX)"),
        kernel="locks_lock_inode_wait",
        path="/runs/a/lock",
    ),
    "a connection": case(
        Wait.CONNECTION,
        "train.py:27 in main: answer = peer.recv(1)",
        frames("train.py:27 main answer = peer.recv(1)"),
        kernel="unix_stream_data_wait",
    ),
    "an event loop": case(
        Wait.CONNECTION,
        "train.py:27 in main: asyncio.run(serve())",
        frames("python3.11/selectors.py:468 select", "train.py:27 main asyncio.run(serve())"),
        kernel="do_epoll_wait",
    ),
    "a debugger": case(Wait.STOPPED, "", kernel="do_signal_stop", state="T"),
    "a subprocess": case(
        Wait.CHILD,
        "train.py:27 in main: subprocess.run(command)",
        frames("python3.11/subprocess.py:1264 wait", "train.py:27 main subprocess.run(command)"),
        kernel="do_wait",
    ),
}


def gang(behind: Group | None, waiting: Group, size: int, *, per_node: int = 1, position: int = 0) -> list[NodeStacks]:
    """A gang as the logs of its nodes report it; one of its ranks is behind, or has ended."""
    ranks: list[Group | None] = [waiting] * size
    ranks[position % size] = behind
    return [_node(ranks[start : start + per_node], start, start // per_node) for start in range(0, size, per_node)]


def _node(ranks: list[Group | None], first: int, node: int) -> NodeStacks:
    groups = [replace(group, ranks=(first + number,)) for number, group in enumerate(ranks) if group is not None]
    read = parse_stacks_line(stacks_line(NodeStacks(node=node, processes=len(ranks), seconds=60, groups=tuple(groups))))
    assert read is not None
    return read
