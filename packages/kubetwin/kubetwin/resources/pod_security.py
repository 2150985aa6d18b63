"""Pod Security Standards: what the levels `baseline` and `restricted` forbid in a pod.

Checks, their order and their texts are those of k8s.io/pod-security-admission/policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from kubetwin.model.errors import Object

LEVELS = ("privileged", "baseline", "restricted")

_BASELINE_CAPABILITIES = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_RESTRICTED_VOLUMES = frozenset(
    [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ]
)
_SYSCTLS = frozenset(
    [
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    ]
)
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")

Fault = tuple[str, str]
"""The forbidden setting, and its place in the pod."""


def violations(pod: Object, level: str) -> str:
    """The faults of a pod at a level, in the words of the server; "" without faults."""
    checks: Sequence[Callable[[Object], Iterable[Fault]]] = ()
    if level == "baseline":
        checks = (*_BASELINE, _capabilities_baseline, _host_paths, _seccomp_baseline)
    elif level == "restricted":
        checks = (*_BASELINE, *_RESTRICTED)
    return ", ".join(f"{reason} ({detail})" for check in checks for reason, detail in check(pod["spec"]))


def _containers(spec: Object) -> list[Object]:
    return [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]


def _context(holder: Object) -> Object:
    found: Object = holder.get("securityContext") or {}
    return found


def _named(names: Sequence[str], noun: str = "container") -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"{noun}{'s' if len(names) > 1 else ''} {quoted}"


def _those(spec: Object, holds: Callable[[Object], object]) -> list[str]:
    """Names of the containers that fulfil a condition."""
    return [container["name"] for container in _containers(spec) if holds(container)]


def _host_namespaces(spec: Object) -> Iterator[Fault]:
    used = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    if used:
        yield "host namespaces", ", ".join(used)


def _host_ports(spec: Object) -> Iterator[Fault]:
    ports = [(c["name"], p["hostPort"]) for c in _containers(spec) for p in c.get("ports") or [] if p.get("hostPort")]
    if ports:
        names = list(dict.fromkeys(name for name, _ in ports))
        numbers = sorted({port for _, port in ports})
        verb = "uses hostPort" if len(numbers) == 1 else "uses hostPorts"
        verb = verb if len(names) == 1 else verb.replace("uses", "use")
        yield "hostPort", f"{_named(names)} {verb} {', '.join(map(str, numbers))}"


def _privileged(spec: Object) -> Iterator[Fault]:
    if names := _those(spec, lambda c: _context(c).get("privileged")):
        yield "privileged", f"{_named(names)} must not set securityContext.privileged=true"


def _proc_mount(spec: Object) -> Iterator[Fault]:
    if names := _those(spec, lambda c: _context(c).get("procMount", "Default") != "Default"):
        yield "procMount", f'{_named(names)} must not set securityContext.procMount to "Unmasked"'


def _selinux(spec: Object) -> Iterator[Fault]:
    def forbidden(holder: Object) -> bool:
        options = _context(holder).get("seLinuxOptions") or {}
        return options.get("type", "") not in _SELINUX_TYPES or bool(options.get("user") or options.get("role"))

    where = (["pod"] if forbidden(spec) else []) + ([_named(n)] if (n := _those(spec, forbidden)) else [])
    if where:
        yield "seLinuxOptions", f"{' and '.join(where)} set forbidden securityContext.seLinuxOptions"


def _sysctls(spec: Object) -> Iterator[Fault]:
    used = [each["name"] for each in _context(spec).get("sysctls") or [] if each["name"] not in _SYSCTLS]
    if used:
        yield "forbidden sysctls", ", ".join(used)


def _host_process(spec: Object) -> Iterator[Fault]:
    def hosted(holder: Object) -> bool:
        return bool((_context(holder).get("windowsOptions") or {}).get("hostProcess"))

    where = (["pod"] if hosted(spec) else []) + ([_named(n)] if (n := _those(spec, hosted)) else [])
    if where:
        yield "hostProcess", f"{' and '.join(where)} must not set securityContext.windowsOptions.hostProcess=true"


def _capabilities_baseline(spec: Object) -> Iterator[Fault]:
    yield from _added(spec, _BASELINE_CAPABILITIES, "non-default capabilities")


def _added(spec: Object, allowed: frozenset[str], reason: str) -> Iterator[Fault]:
    def beyond(container: Object) -> set[str]:
        return set((_context(container).get("capabilities") or {}).get("add") or []) - allowed

    if names := _those(spec, beyond):
        added = sorted(set().union(*(beyond(container) for container in _containers(spec))))
        listed = ", ".join(f'"{name}"' for name in added)
        yield reason, f"{_named(names)} must not include {listed} in securityContext.capabilities.add"


def _host_paths(spec: Object) -> Iterator[Fault]:
    if names := [volume["name"] for volume in spec.get("volumes") or [] if "hostPath" in volume]:
        yield "hostPath volumes", _named(names, "volume")


def _seccomp_type(holder: Object) -> str:
    return str((_context(holder).get("seccompProfile") or {}).get("type", ""))


def _seccomp_baseline(spec: Object) -> Iterator[Fault]:
    where = ["pod"] if _seccomp_type(spec) == "Unconfined" else []
    if names := _those(spec, lambda c: _seccomp_type(c) == "Unconfined"):
        where.append(_named(names))
    if where:
        yield (
            "seccompProfile",
            f'{" and ".join(where)} must not set securityContext.seccompProfile.type to "Unconfined"',
        )


def _restricted_volumes(spec: Object) -> Iterator[Fault]:
    kinds = {
        volume["name"]: next((key for key in volume if key != "name"), "unknown")
        for volume in spec.get("volumes") or []
    }
    wrong = {name: kind for name, kind in kinds.items() if kind not in _RESTRICTED_VOLUMES}
    if wrong:
        listed = ", ".join(f'"{kind}"' for kind in sorted(set(wrong.values())))
        noun = "types" if len(set(wrong.values())) > 1 else "type"
        verb = "use" if len(wrong) > 1 else "uses"
        yield "restricted volume types", f"{_named(list(wrong), 'volume')} {verb} restricted volume {noun} {listed}"


def _escalation(spec: Object) -> Iterator[Fault]:
    if names := _those(spec, lambda c: _context(c).get("allowPrivilegeEscalation") is not False):
        yield (
            "allowPrivilegeEscalation != false",
            f"{_named(names)} must set securityContext.allowPrivilegeEscalation=false",
        )


def _capabilities_restricted(spec: Object) -> Iterator[Fault]:
    def keeps(container: Object) -> bool:
        return "ALL" not in ((_context(container).get("capabilities") or {}).get("drop") or [])

    faults = []
    if names := _those(spec, keeps):
        faults.append(f'{_named(names)} must set securityContext.capabilities.drop=["ALL"]')
    faults += [detail for _, detail in _added(spec, frozenset({"NET_BIND_SERVICE"}), "")]
    if faults:
        yield "unrestricted capabilities", "; ".join(faults)


def _non_root(spec: Object) -> Iterator[Fault]:
    of_pod, reason = _context(spec).get("runAsNonRoot"), "runAsNonRoot != true"
    if names := _those(spec, lambda c: _context(c).get("runAsNonRoot") is False):
        yield reason, f"{_named(names)} must not set securityContext.runAsNonRoot=false"
    elif of_pod is not True and (names := _those(spec, lambda c: _context(c).get("runAsNonRoot") is not True)):
        where = "pod" if of_pod is False else f"pod or {_named(names)}"
        verb = (
            "must not set securityContext.runAsNonRoot=false"
            if of_pod is False
            else ("must set securityContext.runAsNonRoot=true")
        )
        yield reason, f"{where} {verb}"


def _root_user(spec: Object) -> Iterator[Fault]:
    where = ["pod"] if _context(spec).get("runAsUser") == 0 else []
    if names := _those(spec, lambda c: _context(c).get("runAsUser") == 0):
        where.append(_named(names))
    if where:
        yield "runAsUser=0", f"{' and '.join(where)} must not set runAsUser=0"


def _seccomp_restricted(spec: Object) -> Iterator[Fault]:
    allowed = ("RuntimeDefault", "Localhost")
    wrong = _those(spec, lambda c: _seccomp_type(c) not in (*allowed, ""))
    unset = _those(spec, lambda c: not _seccomp_type(c))
    listed = '"RuntimeDefault" or "Localhost"'
    if wrong:
        yield "seccompProfile", f"{_named(wrong)} must set securityContext.seccompProfile.type to {listed}"
    elif _seccomp_type(spec) not in allowed and unset:
        yield "seccompProfile", f"pod or {_named(unset)} must set securityContext.seccompProfile.type to {listed}"


_BASELINE = (_host_namespaces, _host_ports, _host_process, _privileged, _proc_mount, _selinux, _sysctls)
_RESTRICTED = (
    _restricted_volumes,
    _escalation,
    _capabilities_restricted,
    _non_root,
    _root_user,
    _seccomp_restricted,
)
