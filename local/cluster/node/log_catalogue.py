"""Where the logs of a node's containers are."""

from __future__ import annotations

from pathlib import Path

from local.cluster.node.log_writer import ContainerLog


class Logs:
    """The logs under a folder of pods, finished or still written.

    Args:
        pods_dir: Holds a folder `<namespace>_<pod>_<uid>` for each pod, with `<container>.log` and, after
            a restart, `<container>.previous.log`.
    """

    def __init__(self, pods_dir: Path) -> None:
        self._pods_dir = pods_dir
        self._live: dict[Path, ContainerLog] = {}

    def open(self, folder: Path, container: str) -> ContainerLog:
        """Begin the log of a container's next run; the one before is kept as the previous."""
        path = folder / f"{container}.log"
        if path.exists():
            path.rename(folder / f"{container}.previous.log")
        log = ContainerLog(path)
        self._live[path] = log
        return log

    def close(self, log: ContainerLog) -> None:
        """The run has ended."""
        log.close()
        self._live.pop(log.path, None)

    def find_log(self, namespace: str, pod: str, container: str, previous: bool) -> Path | None:
        """The stored log of a container's latest, or last but one, run."""
        name = f"{container}.previous.log" if previous else f"{container}.log"
        if any(separator in part for part in (namespace, pod, container) for separator in "/*?[_"):
            return None  # no name of Kubernetes, but it would mean something to a file system
        found = [path for path in self._pods_dir.glob(f"{namespace}_{pod}_*/{name}") if path.is_file()]
        return max(found, key=lambda path: path.stat().st_mtime, default=None)

    def live_log(self, path: Path) -> ContainerLog | None:
        """The log at that path if it is still being written."""
        return self._live.get(path)
