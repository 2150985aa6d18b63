"""In-memory store of the API server: objects, one counter of revisions, and a window of recent changes.

Everything runs on the server's event loop, without locks. Stored objects are never changed in place.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from kubetwin.model.errors import Object
from kubetwin.model.names import namespaced_name

WINDOW = 8192
"""Most changes kept for each resource; a watch that starts before them is answered 410."""

FRESH_SECONDS, LEAST_KEPT = 75.0, 100
"""Maximum age of kept changes in seconds, and number that is kept whatever their age (kube-apiserver's watch cache)."""

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


@dataclass(frozen=True)
class Change:
    """One write, as watches and controllers see it."""

    revision: int
    type: ChangeType
    key: str
    object: Object
    previous: Object | None
    at: float = field(default_factory=time.monotonic)

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"].get("namespace", ""))

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])


Listener = Callable[[Change], None]
Label = tuple[str, str]
"""Name and value."""


class TooOld(Exception):
    """The changes since the requested revision are no longer kept."""

    def __init__(self, wanted: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {wanted} ({oldest})")


class Store:
    """Objects by resource (`jobs.batch`), namespace and name."""

    def __init__(self) -> None:
        self.revision = 1
        self._objects: dict[str, dict[str, dict[str, Object]]] = defaultdict(lambda: defaultdict(dict))
        self._history: dict[str, deque[Change]] = defaultdict(lambda: deque(maxlen=WINDOW))
        self._forgotten: dict[str, int] = defaultdict(int)
        self._listeners: dict[str, list[Listener]] = defaultdict(list)
        self._labelled: dict[str, dict[Label, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))

    def get(self, key: str, namespace: str, name: str) -> Object | None:
        return self._objects[key][namespace].get(name)

    def objects(self, key: str, namespace: str = "") -> list[Object]:
        """Objects of a resource in a namespace ("" for all), in the order of their names."""
        by_namespace = self._objects[key]
        chosen = [namespace] if namespace else sorted(by_namespace)
        return [obj for place in chosen for _, obj in sorted(by_namespace[place].items())]

    def labelled(self, key: str, namespace: str, labels: Iterable[Label]) -> list[Object]:
        """Objects that have at least the rarest of some labels; the cost does not grow with the others."""
        places = min((self._labelled[key].get(label, set()) for label in labels), key=len)
        found = sorted(place for place in places if namespace in ("", place[0]))
        return [self._objects[key][place][name] for place, name in found]

    def put(self, key: str, obj: Object) -> Object:
        """Store a new state; the object that is returned carries its revision."""
        metadata = obj["metadata"]
        place = self._objects[key][metadata.get("namespace", "")]
        previous = place.get(metadata["name"])
        self.revision += 1
        stored: Object = _sharing({**obj, "metadata": {**metadata, "resourceVersion": str(self.revision)}}, previous)
        place[metadata["name"]] = stored
        self._publish(Change(self.revision, "MODIFIED" if previous else "ADDED", key, stored, previous))
        return stored

    def remove(self, key: str, obj: Object) -> Object:
        """Remove an object; its last state is published with a new revision."""
        metadata = obj["metadata"]
        previous = self._objects[key][metadata.get("namespace", "")].pop(metadata["name"])
        self.revision += 1
        last = {**obj, "metadata": {**metadata, "resourceVersion": str(self.revision)}}
        self._publish(Change(self.revision, "DELETED", key, last, previous))
        return last

    def changes_since(self, key: str, revision: int) -> list[Change]:
        """Changes of a resource after `revision`.

        Raises:
            TooOld: If some of them are no longer remembered.
        """
        if revision < self._forgotten[key]:
            raise TooOld(revision, self._forgotten[key])
        return [change for change in self._history[key] if change.revision > revision]

    def objects_at(self, key: str, revision: int) -> list[Object]:
        """Objects of a resource as they were at `revision`, in the order of their names.

        Raises:
            TooOld: If the changes since then are no longer remembered.
        """
        found = {namespaced_name(obj): obj for obj in self.objects(key)}
        for change in reversed(self.changes_since(key, revision)):
            if change.previous is None:
                found.pop(namespaced_name(change.object), None)
            else:
                found[namespaced_name(change.object)] = change.previous
        return [obj for _, obj in sorted(found.items())]

    def forget_old_changes(self, now: float) -> None:
        """Release the changes that are older than any watch needs; `now` is on the monotonic clock."""
        for key, history in self._history.items():
            while len(history) > LEAST_KEPT and now - history[0].at > FRESH_SECONDS:
                self._forgotten[key] = history.popleft().revision

    def begin_history(self, key: str) -> None:
        """Remember changes of a resource from now on only: its definition is younger than the server."""
        self._history[key].clear()
        self._forgotten[key] = self.revision

    def listen(self, key: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` at every change of a resource ("" for all) until the returned function is called."""
        self._listeners[key].append(listener)
        return lambda: self._listeners[key].remove(listener)

    def _publish(self, change: Change) -> None:
        history = self._history[change.key]
        if len(history) == WINDOW:
            self._forgotten[change.key] = history[0].revision
        history.append(change)
        self._index(change)
        for listener in [*self._listeners[change.key], *self._listeners[""]]:
            listener(change)

    def _index(self, change: Change) -> None:
        index, place = self._labelled[change.key], (change.namespace, change.name)
        before = _labels(change.previous)
        after = set() if change.type == "DELETED" else _labels(change.object)
        for label in after - before:
            index[label].add(place)
        for label in before - after:
            index[label].discard(place)
            if not index[label]:
                del index[label]


def _sharing(new: Any, old: Any) -> Any:
    """A value with all of its parts that another has, too, as the other's own: most changes of an object are small, and
    many are kept."""
    if type(new) is not type(old):
        return new
    if isinstance(new, dict):
        shared: Any = {key: _sharing(value, old.get(key)) for key, value in new.items()}
        same = len(new) == len(old) and all(key in old and shared[key] is old[key] for key in new)
    elif isinstance(new, list):
        shared = [_sharing(*pair) for pair in zip(new, old, strict=False)] + new[len(old) :]
        same = len(new) == len(old) and all(a is b for a, b in zip(shared, old, strict=True))
    else:
        shared, same = new, new == old
    return old if same else shared


def _labels(obj: Object | None) -> set[Label]:
    return set((obj["metadata"].get("labels") or {}).items()) if obj else set()
