"""Let each Python process of the program dump the stacks of its threads when it gets a signal.

The supervisor copies this file into a folder of its own, as `sitecustomize.py`, and appends that folder to the
processes' PYTHONPATH, whose folders Python searches before its own. Python imports it at every start, so also in ranks
that torchrun starts.
It needs nothing of ours, and never makes a program fail.

faulthandler writes the stacks inside the signal's handler, in C: also while another thread holds the interpreter's
lock, and while the process waits in a library. It restarts the system call that the signal interrupts (SA_RESTART).
"""

import sys

SIGNAL_NUMBER = 44
"""A real-time signal, SIGRTMIN + 10: programs, launchers and Slurm use SIGUSR1 and SIGUSR2."""


def register() -> None:
    """Register the signal, and write the number of the main thread into this process's file beside this one."""
    import _thread
    import faulthandler
    import os

    folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120  (pathlib takes time at every start)
    path = os.path.join(folder, f"{os.getpid()}.txt")  # noqa: PTH118
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.write(descriptor, f"main 0x{_thread.get_ident():016x}\n".encode())
    faulthandler.register(SIGNAL_NUMBER, file=descriptor, all_threads=True)


def _import_next() -> None:
    """Import the module of this name that the image or the program has, which this one hides."""
    import importlib.machinery
    import importlib.util
    import os

    own = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    others = [path for path in sys.path if os.path.abspath(path or ".") != own]  # noqa: PTH100
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if found is not None and found.loader is not None:
        module = importlib.util.module_from_spec(found)
        sys.modules["sitecustomize"] = module
        found.loader.exec_module(module)


if __name__ == "sitecustomize":
    try:  # noqa: SIM105  (contextlib would be imported at every start)
        register()
    except Exception:  # noqa: BLE001, S110  (the program starts, with or without)
        pass
    _import_next()
