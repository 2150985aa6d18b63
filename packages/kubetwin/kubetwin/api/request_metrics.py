"""`GET /metrics`: how many requests there were, as kube-apiserver counts them (the answer's code is left out)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kubetwin.api.requests import RequestInfo

NAME = "apiserver_request_total"
LABELS = ("group", "version", "resource", "subresource", "verb")


@dataclass
class RequestMetrics:
    """Requests for resources since the server's start."""

    totals: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def count(self, info: RequestInfo) -> None:
        """Count a request."""
        if info.is_resource:
            self.totals[info.group, info.version, info.resource, info.subresource, info.verb.upper()] += 1

    def text(self) -> str:
        """The counters in Prometheus' text format."""
        lines = [f"# TYPE {NAME} counter"]
        for key, total in sorted(self.totals.items()):
            labels = ",".join(f'{name}="{value}"' for name, value in zip(LABELS, key, strict=True))
            lines.append(f"{NAME}{{{labels}}} {total}")
        return "\n".join(lines) + "\n"
