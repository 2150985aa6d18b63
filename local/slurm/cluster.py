"""A Slurm cluster of virtual nodes on this machine: munged, slurmctld, slurmd, slurmrestd.

Debian's own programs, with a configuration, keys, sockets and ports of their own: the machine's own Slurm, if it
has one, is neither read nor changed, and two clusters do not affect each other.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from local import runtime_folder
from local.slurm import packages
from local.slurm.configuration import ADDRESS, SlurmSettings, slurm_conf
from local.slurm.daemon import Daemon, start_all
from local.slurm.errors import SlurmError
from local.slurm.ports import free_ports
from trainflow.client.owned_folder import OwnedFolder

START_SECONDS = 30.0
"""Time limit for the daemons to find each other; on an idle machine they need one second."""

POLL_SECONDS = 0.05

REST_USER = "slurm"
"""User that Debian's packages make; slurmrestd refuses to run as root."""

API_VERSIONS = ("v0.0.36", "v0.0.37", "v0.0.38")
"""API versions of Slurm 22.05; its plugins for the accounting database need such a database to start."""


class SlurmCluster:
    """The cluster. Use as a context manager, or `start` and `stop`.

    Started by root, it runs jobs as root. Started by another user, it runs daemons and jobs as that user only.
    """

    def __init__(self, settings: SlurmSettings | None = None, *, log_dir: Path) -> None:
        """Prepare, without starting anything.

        Args:
            settings: The configuration of the cluster.
            log_dir: The folder for the logs of daemons and steps.
        """
        self.settings = settings or SlurmSettings()
        self.log_dir = log_dir.resolve()
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.jwt_key = secrets.token_bytes(32)
        """HS256 key of the tokens that slurmrestd takes."""
        self._temporary: OwnedFolder | None = None
        self._munge: Daemon | None = None
        self._controller: Daemon | None = None
        self._rest: Daemon | None = None
        self._nodes: dict[str, Daemon] = {}
        self._rest_port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """Folder with the state of the daemons; it is deleted with the cluster."""
        if self._temporary is None:
            raise SlurmError("Slurm does not run; start it.")
        return Path(self._temporary.name)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make Slurm's own commands use this cluster."""
        return {"PATH": packages.SEARCH_PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}

    @property
    def rest_url(self) -> str:
        """URL of slurmrestd."""
        return f"http://{ADDRESS}:{self._rest_port}"

    def start(self) -> None:
        """Start everything, and wait until every node is idle.

        Raises:
            SlurmMissing: If packages are missing; the message names them.
            SlurmError: If a daemon does not start; nothing runs then.
        """
        packages.require()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every daemon and every job, and delete their state; safe to repeat."""
        daemons = [each for each in (self._rest, *self._nodes.values(), self._controller, self._munge) if each]
        for daemon in daemons:
            daemon.let_go()
        for daemon in daemons:
            daemon.stop()
        self._rest = self._controller = self._munge = None
        self._nodes.clear()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def command(self, name: str, *arguments: str, stdin: str = "") -> str:
        """The output of one of Slurm's commands, such as `command("squeue", "--json")`.

        Raises:
            SlurmError: If it fails; the message is its output.
        """
        done = self._run(name, *arguments, stdin=stdin)
        if done.returncode != 0:
            raise SlurmError(f"{name} {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def stop_controller(self) -> None:
        """Stop slurmctld with its state saved. Jobs continue; commands and slurmrestd get no answer."""
        _started(self._controller).stop(graceful=True)

    def start_controller(self) -> None:
        """Start slurmctld again, with the jobs that it knew, and wait until the running nodes have registered."""
        controller = _started(self._controller)
        controller.start()
        up = [name for name, node in self._nodes.items() if node.running]
        _await(lambda: (states := self._states()) != {} and all(_answers(states[name]) for name in up), controller)

    def restart_controller(self) -> None:
        """Restart slurmctld, as an upgrade or a reboot of its host does."""
        self.stop_controller()
        self.start_controller()

    def stop_rest(self) -> None:
        """Stop slurmrestd; connections are refused from now on."""
        _started(self._rest).stop()

    def start_rest(self) -> None:
        """Start slurmrestd again, at the same port."""
        rest = _started(self._rest)
        rest.start()
        _await(lambda: _listens(self._rest_port), rest)

    def kill_node(self, name: str) -> None:
        """Cut a node's power: slurmd, the steps and their processes end at once, without a message to slurmctld."""
        self._nodes[name].stop()

    def start_node(self, name: str) -> None:
        """Restart a node, and wait until it has registered with slurmctld."""
        self._nodes[name].start()
        _await(lambda: _answers(self._states().get(name, "unknown")), self._nodes[name])

    def _start(self) -> None:
        self._temporary = runtime_folder.create("trainflow-slurm-")
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self._keep_others_out()
        self._write_files()
        environment = self.environment
        self._munge = Daemon("munged", self._munge_command(), environment=environment, log=self._log("munged"))
        self._munge.start()
        # A daemon that starts before munged waits for a second before it tries again.
        _await((self.folder / "munge.socket").exists, self._munge)
        slurmctld = (packages.program("slurmctld"), "-D")
        self._controller = Daemon("slurmctld", slurmctld, environment=environment, log=self._log("slurmctld"))
        self._rest = self._rest_daemon()
        self._nodes = {name: self._node_daemon(name) for name in self.settings.nodes}
        start_all([self._controller, self._rest, *self._nodes.values()])
        everything = (self._munge, self._controller, self._rest, *self._nodes.values())
        _await(lambda: _listens(self._rest_port), self._rest)
        _await(lambda: self._states() == dict.fromkeys(self.settings.nodes, "idle"), *everything)

    def _keep_others_out(self) -> None:
        """Let no other user reach the folder.

        munged vouches for everyone who reaches its socket, and a slurmd that does not run as root runs everyone's steps
        as its own user. With root, slurmrestd is another user, which reads the configuration.
        """
        if os.geteuid() == 0:
            shutil.chown(self.folder, group=REST_USER)
            self.folder.chmod(0o710)
        else:
            self.folder.chmod(0o700)

    def _write_files(self) -> None:
        host = socket.gethostname().partition(".")[0]
        ports = free_ports(num_nodes=self.settings.num_nodes)
        self._rest_port = ports.rest
        text = slurm_conf(
            self.settings,
            host=host,
            address=_loopback_address_of(host),
            user=self.user,
            ports=ports,
            folder=self.folder,
            log_dir=self.log_dir,
        )
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "slurm.conf").chmod(0o644)
        (self.folder / "state").mkdir(mode=0o700)
        for name in self.settings.nodes:
            (self.folder / f"spool-{name}").mkdir(mode=0o755)
        for name, key in (("jwt.key", self.jwt_key), ("munge.key", secrets.token_bytes(128))):
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_bytes(key)

    def _munge_command(self) -> list[str]:
        files = {name: self.folder / f"munge.{name}" for name in ("key", "socket", "pid", "seed", "log")}
        return [
            # Forced: it wants a socket that everyone reaches.
            *(packages.program("munged"), "--foreground", "--force", "--num-threads=2", f"--socket={files['socket']}"),
            *(f"--{name}-file={files[name]}" for name in ("key", "pid", "seed", "log")),
        ]

    def _rest_daemon(self) -> Daemon:
        conf, plugins = self.folder / "slurm.conf", ",".join(f"openapi/{version}" for version in API_VERSIONS)
        other_user, environment = ["-u", REST_USER, "-g", REST_USER], {**self.environment, "SLURM_JWT": "daemon"}
        if os.geteuid() != 0:  # only root may change the user, and SlurmUser is refused otherwise
            other_user, environment = [], {**environment, "SLURMRESTD_SECURITY": "disable_user_check"}
        command = [
            *(packages.program("slurmrestd"), "-f", str(conf), *other_user),
            *("-a", "rest_auth/jwt", "-s", plugins, f"{ADDRESS}:{self._rest_port}"),
        ]
        return Daemon("slurmrestd", command, environment=environment, log=self._log("slurmrestd"))

    def _node_daemon(self, name: str) -> Daemon:
        command = (packages.program("slurmd"), "-D", "-N", name)
        log = self._log(name)
        return Daemon(f"slurmd of {name}", command, environment=self.environment, log=log, writes_log=True)

    def _log(self, name: str) -> Path:
        return self.log_dir / f"{name}.log"

    def _states(self) -> dict[str, str]:
        """State of each node: `idle`, `mixed`, `down`, …, with `*` when it does not answer; empty without slurmctld."""
        table = self._run("sinfo", "--noheader", "--Node", "--format", "%N %T").stdout
        return dict(line.split(maxsplit=1) for line in table.splitlines())

    def _run(self, name: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [packages.program(name), *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )


def _started(daemon: Daemon | None) -> Daemon:
    if daemon is None:
        raise SlurmError("Slurm does not run; start it.")
    return daemon


def _await(condition: Callable[[], bool], *daemons: Daemon) -> None:
    """Wait for a change that the daemons make.

    Raises:
        SlurmError: If a daemon has ended, or the time is over.
    """
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        for daemon in daemons:
            daemon.require_running()
        if time.monotonic() > deadline:
            names = ", ".join(f"{daemon.name}: {daemon.last_words()}" for daemon in daemons)
            raise SlurmError(f"Slurm was not ready in {START_SECONDS:.0f} s. {names}")
        time.sleep(POLL_SECONDS)


def _answers(state: str) -> bool:
    """Whether a node has recently registered with slurmctld in this state."""
    return not state.endswith("*") and not state.startswith(("down", "unk"))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((ADDRESS, port)) == 0


def _loopback_address_of(host: str) -> str:
    """The address of this machine's name. Slurm listens on it; it would otherwise listen on every interface.

    Raises:
        SlurmError: If it is not a loopback address.
    """
    try:
        address = socket.gethostbyname(host)
    except OSError:
        address = "nothing"
    if not address.startswith("127."):
        raise SlurmError(
            f"The twin's Slurm listens on loopback alone, but this machine's name '{host}' leads to {address}; add the "
            f"line '127.0.1.1 {host}' to /etc/hosts."
        )
    return address
