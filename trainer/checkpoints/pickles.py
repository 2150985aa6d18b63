"""Reads pickles without running what they name, to find out whether they end and which sizes they state.

Classes and functions of a pickle are replaced by inert ones, so no code of the file is executed and neither torch nor
the program's packages are needed.
"""

from __future__ import annotations

import mmap
import pickle
import pickletools
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

BEGINS = b"\x80"
"""First byte of a pickle of protocol 2 and newer."""

TORCH_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""First bytes of `torch.save`'s format before version 1.6 (torch/serialization.py, `MAGIC_NUMBER`)."""

BYTES_BY_STORAGE = {
    "ComplexDoubleStorage": 16,
    "ComplexFloatStorage": 8,
    "DoubleStorage": 8,
    "LongStorage": 8,
    "FloatStorage": 4,
    "IntStorage": 4,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "ShortStorage": 2,
    "CharStorage": 1,
    "ByteStorage": 1,
    "BoolStorage": 1,
    "UntypedStorage": 1,
}
"""Bytes of one element, by torch's name of the storage."""

MAX_OPERATIONS = 5_000_000
"""Operations of a pickle that are read, about 2 seconds; of a longer one, only the last byte is looked at."""

STOP = pickle.STOP[0]

_WIDTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
"""Bytes that state the length of an argument, by the standard library's sign for them."""


@dataclass(frozen=True)
class Argument:
    """The argument of an operation: of a fixed length, behind its length, or some lines."""

    fixed: int = 0
    width: int = 0
    lines: int = 0


def _argument(operation: pickletools.OpcodeInfo) -> Argument:
    if operation.arg is None:
        return Argument()
    if operation.arg.n == pickletools.UP_TO_NEWLINE:
        return Argument(lines=2 if operation.arg.name.endswith("_pair") else 1)
    width = _WIDTHS.get(operation.arg.n, 0)
    return Argument(width=width) if width else Argument(fixed=operation.arg.n)


ARGUMENTS = {ord(operation.code): _argument(operation) for operation in pickletools.opcodes}
"""The argument of each operation, by its code."""

TRUNCATED = ("truncated", "exhausted", "\\x00")
"""Words in the standard library's errors for a pickle that ends too early, or goes on with zeros."""


class Inert:
    """Stands for an object of any class; keeps the state that the pickle gives it."""

    state: Any = None

    def __new__(cls, *_values: Any, **_named: Any) -> Inert:
        return object.__new__(cls)

    def __init__(self, *_values: Any, **_named: Any) -> None:
        """Accept what the class or function would have been called with."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, _key: Any, _value: Any) -> None:
        """Accept an item of a subclass of dict."""

    def append(self, _value: Any) -> None:
        """Accept an element of a subclass of list."""

    extend = add = append


class InertUnpickler(pickle.Unpickler):
    """Loads plain containers and values, with `Inert` in the place of everything else."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, encoding="latin1")
        self.named: list[Any] = []
        """Persistent ids of the pickle: descriptions of objects outside of it."""

    def find_class(self, module: str, name: str) -> Any:
        """An inert class in the place of the named class or function."""
        return dict if name == "OrderedDict" else type(name, (Inert,), {"__module__": module})

    def persistent_load(self, pid: Any) -> Any:
        """Note the identity of an outside object; old files of torch name a module's class in this way."""
        self.named.append(pid)
        return pid[1] if isinstance(pid, tuple) and pid[0] == "module" else Inert()


def begins(first: bytes) -> bool:
    """Whether a pickle can begin with these bytes."""
    return first[:1] == BEGINS and first[1:2] <= bytes([pickle.HIGHEST_PROTOCOL])


def is_whole(file: Path) -> bool | None:
    """Whether the last pickle of a file ends; None if the file goes on in another way, as with arrays between them."""
    with file.open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as view:
        if b"joblib" in view[:65536]:
            return None  # it has arrays between the operations
        place = 0
        try:
            while place < len(view):
                if not begins(view[place : place + 2]):
                    return None
                place = _end(view, place)
        except IndexError:
            return False
        except UnknownOperation as unknown:
            return False if unknown.code == 0 else None  # zeros on the disk, or other data
        except OverflowError:
            return view[-1:] == pickle.STOP
        return True


class UnknownOperation(Exception):
    """A byte outside of the operations of a pickle."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def _end(view: mmap.mmap, place: int) -> int:
    """The end of a pickle. Its data are passed over, and not read.

    Raises:
        IndexError: If the file ends before it does.
        UnknownOperation: If something else follows.
        OverflowError: If it has more than `MAX_OPERATIONS`.
    """
    for _ in range(MAX_OPERATIONS):
        code = view[place]
        if code == STOP:
            return place + 1
        if code not in ARGUMENTS:
            raise UnknownOperation(code)
        place = _behind(view, place + 1, ARGUMENTS[code])
    raise OverflowError


def _behind(view: mmap.mmap, place: int, argument: Argument) -> int:
    """The place behind an argument."""
    if argument.width:
        if place + argument.width > len(view):
            raise IndexError(place)
        stated = int.from_bytes(view[place : place + argument.width], "little")
        return place + argument.width + stated
    for _ in range(argument.lines):
        end = view.find(b"\n", place)
        if end < 0:
            raise IndexError(place)
        place = end + 1
    return place + argument.fixed


def old_torch_is_whole(file: Path) -> bool | None:
    """Whether a file of torch before version 1.6 has all its tensors; None if their sizes are not known.

    Five pickles (the last one a list of storages) are followed by each storage: 8 bytes with the number of its
    elements, then the elements (torch/serialization.py, `_legacy_save`).
    """
    with file.open("rb") as content:
        try:
            for _ in range(3):
                InertUnpickler(content).load()
            saved = InertUnpickler(content)
            saved.load()
            keys = InertUnpickler(content).load()
            sizes = {pid[2]: pid[4] * BYTES_BY_STORAGE[pid[1].__name__] for pid in saved.named if pid[0] == "storage"}
            needed = sum(8 + sizes[key] for key in keys)
        except Exception as error:  # noqa: BLE001  (a damaged or unusual pickle may raise anything)
            return False if _ends_too_early(error) else None
        size = file.stat().st_size
        return bool(content.tell() + needed <= size)


def _ends_too_early(error: Exception) -> bool:
    if isinstance(error, pickle.UnpicklingError):
        return any(word in str(error) for word in TRUNCATED)
    return isinstance(error, EOFError)


def saved_by_torch(file: Path) -> Any:
    """The plain values of a file of `torch.save`; None if it cannot be read."""
    try:
        with zipfile.ZipFile(file) as archive:
            name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
            with archive.open(name) as content:
                return InertUnpickler(content).load()
    except Exception:  # noqa: BLE001  (a damaged or unusual pickle may raise anything)
        return None


def ends_by_file(metadata: Path) -> dict[str, int]:
    """The end of the last tensor in each file of `torch.distributed.checkpoint`, as its `.metadata` states them.

    Raises:
        ValueError: If the metadata ends too early.
    """
    ends: dict[str, int] = {}
    try:
        with metadata.open("rb") as content:
            loaded = InertUnpickler(content).load()
        for stored in loaded.state["storage_data"].values():
            name, end = stored.state["relative_path"], stored.state["offset"] + stored.state["length"]
            ends[name] = max(end, ends.get(name, 0))
    except Exception as error:  # of another version, or of another storage
        if _ends_too_early(error):
            raise ValueError(str(error)) from error
        return {}
    return ends
