"""A small Kubernetes cluster on this machine, and nodes that run pods as processes."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kubetwin.background import Worker
from kubetwin.stopping import StopRequest

if TYPE_CHECKING:
    from kubetwin.node.launching import RuntimeSettings
    from kubetwin.node.no_op import LogLines
    from kubetwin.node.shape import NodeShape
    from kubetwin.server import ApiServer
    from kubetwin.state.cluster import NodeTimes

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)

_LOOPBACK = "127.0.0.1"

ShapeOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="JSON or YAML file with capacity, allocatable, labels and taints of each node. This machine's CPUs and "
        "memory if not given.",
    ),
]
LabelOption = Annotated[
    list[str], typer.Option(help="Node label beside those of the shape, KEY=VALUE. May be repeated.")
]
EnvOption = Annotated[list[str], typer.Option(help="Variable for every container, KEY=VALUE. May be repeated.")]
EnvFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File of such variables, KEY=VALUE in each line; for secrets, since all users of a machine can read "
        "command lines.",
    ),
]
ImageRootOption = Annotated[Path | None, typer.Option(help="Folder that stands in for every container image.")]
ImageOption = Annotated[
    list[str],
    typer.Option(help="Folder that stands in for one image instead, IMAGE=FOLDER. May be repeated."),
]
KnownImageOption = Annotated[
    list[str],
    typer.Option(
        help="An image that exists. May be repeated; if given, other images than these and those of --image cannot be "
        "pulled. Otherwise every image exists."
    ),
]
WallsOption = Annotated[
    bool,
    typer.Option(
        "--walls",
        help="Run each container as its user, with its own root file system and mounts. Linux that gives its users "
        "namespaces only.",
    ),
]
HideOption = Annotated[
    list[Path], typer.Option(metavar="FOLDER", help="A folder that no container behind walls sees. May be repeated.")
]
NetworkOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="PID",
        help="Process that keeps the network of containers behind walls, as another command names it; this machine's "
        "network if not given.",
    ),
]
HeartbeatOption = Annotated[
    float,
    typer.Option(min=0.1, metavar="SECONDS", help="Time between two heartbeats of a node that runs programs."),
]
AccessKeyOption = Annotated[
    str,
    typer.Option(
        envvar="KUBETWIN_AWS_ACCESS_KEY",
        help="Access key for reading access entries, ID:SECRET; best given by the variable.",
    ),
]
StdinOption = Annotated[bool, typer.Option("--until-stdin-closes", help="Also stop at the end of standard input.")]


class BadArgument(Exception):
    """An option cannot be used; the text names it and the reason."""


@app.callback(invoke_without_command=True)
def cluster(
    context: typer.Context,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig to write. In the state folder if not given.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API server; 0 takes a free one.")] = 0,
    nodes: Annotated[int, typer.Option(min=0, max=100, help="How many nodes to run.")] = 1,
    shape: ShapeOption = None,
    label: LabelOption = [],  # noqa: B006 (typer copies it)
    env: EnvOption = [],  # noqa: B006
    env_file: EnvFileOption = None,
    image_root: ImageRootOption = None,
    image: ImageOption = [],  # noqa: B006
    known_image: KnownImageOption = [],  # noqa: B006
    walls: WallsOption = False,
    hide: HideOption = [],  # noqa: B006
    state: Annotated[
        Path | None, typer.Option(help="Folder for pods and logs, kept. A temporary one if not given.")
    ] = None,
    sts_endpoint: Annotated[
        str | None, typer.Option(help="AWS endpoint that checks EKS login tokens and knows access entries.")
    ] = None,
    cluster_name: Annotated[str | None, typer.Option(help="EKS cluster name that login tokens are for.")] = None,
    access_key: AccessKeyOption = "",
    node_grace_seconds: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="A node that is silent for so long is lost.")
    ] = 50,
    default_toleration_seconds: Annotated[
        int,
        typer.Option(
            min=0, metavar="SECONDS", help="How long a pod stays on a lost node, unless its tolerations say it."
        ),
    ] = 300,
    heartbeat_seconds: HeartbeatOption = 10,
    until_stdin_closes: StdinOption = False,
) -> None:
    """Run an API server, its controllers and nodes until interrupted. Loopback only.

    When everything is ready, one line of JSON on standard output names the endpoint, the kubeconfig and, with --walls,
    the process that keeps the containers' network.
    """
    if context.invoked_subcommand is not None:
        return
    from kubetwin.state.cluster import NodeTimes

    node_shape = _node_shape(shape, label, [])
    if nodes and node_grace_seconds <= heartbeat_seconds:
        raise BadArgument(
            f"--node-grace-seconds {node_grace_seconds:g}: a heartbeat comes every {heartbeat_seconds:g} s; give more, "
            "or fewer --heartbeat-seconds"
        )
    names = [f"local-{number}" for number in range(nodes)]
    stop = _stop_request(until_stdin_closes)
    with contextlib.ExitStack() as stack:
        folder = state or Path(stack.enter_context(_temporary_folder("kubetwin-")))
        variables = _variables(env, env_file)
        network = stack.enter_context(_pod_network()) if walls and nodes else None
        settings = _settings(
            folder / "pods", node_shape, variables, image_root, image, known_image, walls, hide, network
        )
        times = NodeTimes(grace_seconds=node_grace_seconds, toleration_seconds=default_toleration_seconds)
        server = stack.enter_context(_api_server(port, sts_endpoint, cluster_name, access_key, times))
        file = _write_kubeconfig(kubeconfig or folder / "kubeconfig", server)
        stack.enter_context(_nodes(names, file, node_shape, settings, heartbeat_seconds))
        with_network = {} if network is None else {"network": str(network)}
        _announce({"endpoint": server.endpoint, "kubeconfig": str(file), **with_network})
        stop.wait()


@app.command()
def node(
    kubeconfig: Annotated[Path, typer.Option(help="Kubeconfig that names the API server to attach to.")],
    name: Annotated[list[str] | None, typer.Option(help="Name of the node. Repeated, it runs several nodes.")] = None,
    shape: ShapeOption = None,
    label: LabelOption = [],  # noqa: B006
    taint: Annotated[list[str], typer.Option(help="Node taint beside those of the shape, KEY=VALUE:EFFECT.")] = [],  # noqa: B006
    env: EnvOption = [],  # noqa: B006
    env_file: EnvFileOption = None,
    pods_dir: Annotated[
        Path | None, typer.Option(help="Folder for pods and logs, kept. A temporary one if not given.")
    ] = None,
    image_root: ImageRootOption = None,
    image: ImageOption = [],  # noqa: B006
    known_image: KnownImageOption = [],  # noqa: B006
    walls: WallsOption = False,
    hide: HideOption = [],  # noqa: B006
    network: NetworkOption = None,
    no_op: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Run no programs: each pod prints a line and succeeds after this time."),
    ] = None,
    no_op_log: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Python function from a pod's manifest to the lines that the pod prints under --no-op.",
        ),
    ] = None,
    heartbeat_seconds: HeartbeatOption = 10,
    until_stdin_closes: StdinOption = False,
) -> None:
    """Attach nodes to the API server that a kubeconfig names, until interrupted.

    For each node that is Ready, one line of JSON on standard output names it.
    """
    names = name or ["local-0"]
    if no_op_log is not None and no_op is None:
        raise BadArgument("--no-op-log needs --no-op: pods that run their programs print what these print")
    if len(set(names)) < len(names):
        raise BadArgument(f"--name: {', '.join(names)}: every node needs a name of its own")
    node_shape, variables = _node_shape(shape, label, taint), _variables(env, env_file)
    with contextlib.ExitStack() as stack:
        folder = pods_dir or Path(stack.enter_context(_temporary_folder("kubetwin-pods-")))
        settings = _settings(folder, node_shape, variables, image_root, image, known_image, walls, hide, network)
        stop = _stop_request(until_stdin_closes)
        if no_op is None:
            nodes = _nodes(names, kubeconfig, node_shape, settings, heartbeat_seconds)
        else:
            nodes = _no_op_nodes(
                names, kubeconfig, node_shape, folder, run_seconds=no_op, log_lines=_log_lines(no_op_log)
            )
        stack.enter_context(nodes)
        for ready in names:
            _announce({"node": ready})
        stop.wait()


@app.command()
def gateway(
    kubeconfig: Annotated[Path, typer.Option(help="Kubeconfig of the cluster behind the gateway.")],
    sts_endpoint: Annotated[str, typer.Option(help="AWS endpoint that checks EKS login tokens, knows access entries.")],
    cluster_name: Annotated[str, typer.Option(help="EKS cluster name that login tokens are for.")],
    access_key: AccessKeyOption = "",
    until_stdin_closes: StdinOption = False,
) -> None:
    """Serve the cluster that a kubeconfig names to clients that log in as on EKS. Loopback only."""
    from kubetwin.gateway import serving

    _require_botocore()
    stop = _stop_request(until_stdin_closes)
    with serving(kubeconfig, sts_endpoint=sts_endpoint, cluster_name=cluster_name, access_key=access_key) as served:
        _announce({"endpoint": served.endpoint, "ca_data": served.ca_data})
        stop.wait()


def main() -> None:
    """Run the command; errors that a user can correct become one sentence on standard error and exit code 2."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # users need no warning about a full connection pool
    from kubetwin.client import ApiUnreachable, RequestRefused
    from kubetwin.kubeconfig import KubeconfigError
    from kubetwin.node.shape import ShapeError

    try:
        app()
    except (BadArgument, RequestRefused, ApiUnreachable, KubeconfigError, ShapeError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _require_botocore() -> None:
    if importlib.util.find_spec("botocore") is None:
        raise BadArgument("--sts-endpoint: requests for access entries are signed; install kubetwin[eks]")


@contextlib.contextmanager
def _api_server(
    port: int, sts_endpoint: str | None, cluster_name: str | None, access_key: str, node_times: NodeTimes
) -> Iterator[ApiServer]:
    from kubetwin.access_entries import AccessEntries
    from kubetwin.authentication import StsAuthenticator
    from kubetwin.server import ApiServer, PortInUse

    if bool(sts_endpoint) != bool(cluster_name):
        raise BadArgument("--sts-endpoint and --cluster-name belong together: give both or neither")
    authenticators = []
    if sts_endpoint and cluster_name:
        _require_botocore()
        entries = AccessEntries(sts_endpoint, cluster_name, access_key=access_key)
        authenticators.append(StsAuthenticator(sts_endpoint, cluster_name, groups_of=entries.groups_of))
    server = ApiServer(host=_LOOPBACK, port=port, authenticators=authenticators, node_times=node_times)
    try:
        server.start()
    except PortInUse as error:
        raise BadArgument(f"--port: {error}") from error
    except OSError as error:
        raise BadArgument(f"--port {port}: the API server cannot listen there: {error.strerror}") from error
    try:
        yield server
    finally:
        server.stop()


def _write_kubeconfig(path: Path, server: ApiServer) -> Path:
    from kubetwin.kubeconfig import write_kubeconfig

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_kubeconfig(path, endpoint=server.endpoint, ca_pem=server.ca_pem, token=server.admin_token)
    except OSError as error:
        raise BadArgument(f"--kubeconfig {path}: cannot be written: {error.strerror}") from error
    return path.resolve()


def _temporary_folder(prefix: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)


def _node_shape(file: Path | None, labels: list[str], taints: list[str]) -> NodeShape:
    from kubetwin.node.shape import ShapeError, extended, parse_taint, read_shape, this_machine

    try:
        shape = this_machine() if file is None else read_shape(file)
    except ShapeError as error:
        raise BadArgument(f"--shape {error}") from error
    try:
        more_taints = [parse_taint(text) for text in taints]
    except ShapeError as error:
        raise BadArgument(f"--taint: {error}") from error
    return extended(shape, labels=_pairs("--label", labels), taints=more_taints)


def _settings(
    pods_dir: Path,
    shape: NodeShape,
    variables: dict[str, str],
    image_root: Path | None,
    images: list[str],
    known_images: list[str],
    walls: bool,
    hide: list[Path],
    network: int | None,
) -> RuntimeSettings:
    from kubetwin.node.launching import RuntimeSettings

    if image_root is not None and not image_root.is_dir():
        raise BadArgument(f"--image-root {image_root}: there is no such folder")
    image_roots = {name: Path(folder) for name, folder in _pairs("--image", images).items()}
    for name, folder in image_roots.items():
        if not folder.is_dir():
            raise BadArgument(f"--image {name}={folder}: there is no such folder")
    if walls:
        from kubetwin.node.isolation import machine_can_isolate

        if not machine_can_isolate():
            raise BadArgument("--walls: this machine gives its users no namespaces; leave the option out")
    elif hide:
        raise BadArgument("--hide needs --walls: otherwise containers see what their user sees")
    elif network is not None:
        raise BadArgument("--network needs --walls: otherwise containers have this machine's network")
    return RuntimeSettings(
        pods_dir=pods_dir.resolve(),
        image_root=image_root.absolute() if image_root else None,
        image_roots={image: folder.absolute() for image, folder in image_roots.items()},
        known_images=frozenset(known_images) or None,
        environment=variables,
        allocatable=shape.allocatable,
        is_isolated=walls,
        hidden=tuple(folder.resolve() for folder in hide),
        network=network,
    )


@contextlib.contextmanager
def _pod_network() -> Iterator[int | None]:
    """The process that keeps a network for containers; None, with a warning, if the machine does not give one."""
    from kubetwin.node.isolation import missing_network
    from kubetwin.node.pod_network import PodNetwork

    if (reason := missing_network()) is not None:
        logging.getLogger("kubetwin").warning("containers have this machine's network: %s", reason)
        yield None
        return
    with PodNetwork() as network:
        yield network.pid


@contextlib.contextmanager
def _nodes(
    names: list[str], kubeconfig: Path, shape: NodeShape, settings: RuntimeSettings, heartbeat_seconds: float
) -> Iterator[None]:
    """Run nodes; they are Ready inside the block."""
    from kubetwin.client import ApiClient
    from kubetwin.kubeconfig import load_connection
    from kubetwin.node.agent import ProcessNode
    from kubetwin.node.fleet import running
    from kubetwin.node.registration import NodeSpec

    with contextlib.closing(ApiClient(load_connection(kubeconfig))) as api:
        try:
            nodes = [
                ProcessNode(api, NodeSpec(name=name, shape=shape), settings, heartbeat_seconds=heartbeat_seconds)
                for name in names
            ]
        except OSError as error:
            raise BadArgument(f"{error.filename}: the folder for pods cannot be made: {error.strerror}") from error
        with running(nodes):
            yield


@contextlib.contextmanager
def _no_op_nodes(
    names: list[str],
    kubeconfig: Path,
    shape: NodeShape,
    pods_dir: Path,
    *,
    run_seconds: float,
    log_lines: LogLines,
) -> Iterator[None]:
    """Run nodes whose pods run no program; they are Ready inside the block."""
    from kubetwin.client import ApiClient
    from kubetwin.kubeconfig import load_connection
    from kubetwin.node.no_op import NoOpNodes
    from kubetwin.node.registration import NodeSpec

    with contextlib.closing(ApiClient(load_connection(kubeconfig))) as api:
        specs = [NodeSpec(name=name, shape=shape) for name in names]
        nodes = NoOpNodes(api, specs, pods_dir, run_seconds=run_seconds, log_lines=log_lines)
        nodes.start()
        try:
            yield
        finally:
            nodes.stop()


def _log_lines(reference: str | None) -> LogLines:
    """The function that `MODULE:FUNCTION` names."""
    from kubetwin.node.no_op import default_log_lines

    if reference is None:
        return default_log_lines
    module, _, name = reference.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadArgument(f"--no-op-log {reference}: has to be MODULE:FUNCTION: {error}") from error
    if not callable(function):
        raise BadArgument(f"--no-op-log {reference}: is not a function")
    return cast("LogLines", function)


def _variables(given: list[str], file: Path | None) -> dict[str, str]:
    """Variables for containers; one that is given comes before one of the file."""
    try:
        lines = file.read_text().splitlines() if file is not None else []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise BadArgument(f"--env-file {file}: cannot be read: {reason}") from error
    for number, line in enumerate(lines, start=1):
        if not re.match(r"[^=\s]+=", line):  # the line itself may be a secret
            raise BadArgument(f"--env-file {file}: line {number} has to be KEY=VALUE")
    return _pairs("--env", [*lines, *given])


def _pairs(option: str, texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for (key, separator, _), text in zip(pairs, texts, strict=True):
        if not key or not separator:
            raise BadArgument(f"{option} {text}: has to be KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _announce(facts: dict[str, str]) -> None:
    print(json.dumps(facts), flush=True)


def _stop_request(until_stdin_closes: bool) -> StopRequest:
    """A request that SIGINT and SIGTERM make, and with `until_stdin_closes` the end of standard input."""
    stop = StopRequest()
    if until_stdin_closes:

        def wait_for_end() -> None:
            while os.read(sys.stdin.fileno(), 4096):
                pass
            stop.set()

        Worker(wait_for_end, name="stdin", on_error=lambda _: stop.set()).start()
    return stop


if __name__ == "__main__":
    main()
