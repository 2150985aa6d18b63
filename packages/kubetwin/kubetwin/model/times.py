"""Time stamps as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def now() -> datetime:
    return datetime.now(UTC)


def seconds(moment: datetime) -> str:
    """`metav1.Time`: RFC 3339 in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micros(moment: datetime) -> str:
    """`metav1.MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def seconds_left(since: str | None, seconds: float | None, moment: datetime) -> float | None:
    """Seconds until a time span after a time stamp is over; None if its begin or its length is missing."""
    if not since or seconds is None:
        return None
    return (parse(since) + timedelta(seconds=seconds) - moment).total_seconds()


def age(since: str, moment: datetime) -> str:
    """Age as `kubectl get` prints it (`45s`, `3m12s`, `2h`, `5d`)."""
    if not since:
        return "<unknown>"
    total = max(0, int((moment - parse(since)).total_seconds()))
    if total < 120:
        return f"{total}s"
    minutes, rest = divmod(total, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"
