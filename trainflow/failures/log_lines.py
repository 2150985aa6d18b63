"""Evidence in the last lines of a failed pod's log: errors, exceptions, warnings, and torchrun's report.

Every function takes any text: a program may print whatever it likes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainflow.protocol.launcher_report import FIRST_SIGNAL_EXIT_CODE, first_exit_code
from trainflow.protocol.metrics_line import metrics_figures
from trainflow.protocol.result import read_result
from trainflow.protocol.step_report import is_relayed, report_figures

MAX_LINES = 2000
"""Last lines that are judged: the report of torchrun about 64 ranks is 500 lines long."""

MAX_LINE_LENGTH = 1200
"""Characters of a line that are judged: its first and its last half. It bounds the time."""

MAX_CHARACTERS = 200_000
"""Maximum number of characters to judge, the last ones: 0.6 s of text that many expressions begin to match."""

_FRAME = re.compile(
    r'^(?:\[[^\]]{0,40}\]:?\s?)?\s*(?:File "[^"]{0,400}", line \d|frame #\d|at [\w.$]{1,200}\(|[│╭╰]|-{2,8}> \d)'
)
"""A frame of a traceback, of Rich's and IPython's too. The lines of source code below it say what the program would
have done."""

_ERROR_BOX = re.compile(r"^╭─+ Error ─")
"""Top of the frame around Typer's message about the arguments. Other frames of Rich hold source code."""

RANK_PREFIX = re.compile(
    r"^(?:\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}(?=\[\d)|\d{4}-\d\d-\d\d [\d:]{8} [\d.]{7,15} (?=\[\d)"
    r"|\[(?![A-Z])[\w,-]{0,40}\d\][:\s]?\s?|<std(?:err|out)>:?\s?|\((?:\w{1,80} )?pid=\d{1,9}[^)]{0,80}\)\s?"
    r"|\s{0,4}\d{1,5}: )+"
)
"""Prefixes of torchrun, mpirun, Ray or srun before a rank's line: `[rank3]: `, `[default0]:`, `[1,0]<stderr>:`,
`(RayTrainWorker pid=4412, ip=10.0.3.4) `, `3: `. Horovod and torch_xla print a time before the number."""

_CONTAINER_PREFIX = re.compile(
    r"^(?:\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (?:std(?:err|out) [FP] )?|\[pod/[^\]]{1,200}\] "
    r"|[\w.-]{0,80}\d[\w.-]{0,80}\s{1,20}\| |\s{1,12}\| )"
)
"""Prefixes of containerd, kubectl, docker compose or a group of exceptions before a line."""

_ESCAPE = re.compile(r"\x1b\[[\d;?]{0,20}[A-Za-z]")
"""A colour or a movement of the cursor on a terminal."""

_LOGGER_PREFIX = re.compile(
    r"^(?:\[?\d{4}-\d\d-\d\d[ T][\d:.,]{8,15}Z?\]?[ :-]{0,3})?(?:[\w.]{1,60} - )?"
    r"\[?(?:INFO|DEBUG|info|debug)\]?[ :-]{1,3}"
)
"""Prefixes of a logger before the lines of a process that it relays."""

_RELAYED = re.compile(r"^(?:\[\w{0,20}\d\]:\s?)?Traceback \(most recent call last\)")
"""The line that no program logs for information: a logger before it relays the output of another process."""

MAX_RECORD = 20_000
"""Characters of a record in JSON that is read: longer ones are text."""

_EXCEPTION = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w{0,80}\.){0,12}[A-Z_]\w{0,80})(?:\((?P<inner>[A-Z]\w{0,80})\))?(?::\s|:?$)"
)
"""Last line of a Python traceback. Ray names what it wraps: `RayTaskError(ValueError): `."""

_WRAPPED = re.compile(r"(?:: Caught (?=\w{1,80} in )|state=finished raised )(?P<type>[A-Z]\w{1,80})")
"""Text of a data loader about the exception of its worker, and of tenacity about the last one that it caught."""

_LOGGED_EXCEPTION = re.compile(
    r"[\s\"'\]>|-](?:[A-Za-z_]\w{0,80}\.){0,12}(?P<type>[A-Z]\w{1,80}(?:Error|Exception))(?=:\s|\"?$)"
)
"""An exception behind the prefix of a logger: `2026-11-21 06:38:02 - ERROR - ValueError: …`."""

_QUALIFIED = re.compile(r"^(?:[a-z_]\w{0,80}\.){1,12}[A-Z]\w{0,80}(?::\s|:?$)")
"""An exception named with its module: `queue.Empty`, `acme.plans.PlanViolation: …`. No other line begins so."""

_HANDLING = "During handling of the above exception, another exception occurred"
"""Python's line between an exception that the program handled and the one that ended it."""

_IGNORED = "Exception ignored in"
"""Python's line before an exception that did not end the program: in a finalizer, for example."""

_CAUSE = "The above exception was the direct cause of the following exception"
"""Python's line between an exception and the one that was raised from it."""

_WEAK = re.compile(
    r"^(?:\[?[iw]\d{3,4}[ \]:]|[\W\d]{0,40}\[?[iw] (?!error)\S{1,60}\.cpp)"
    r"|\b\w{1,40}warning: "
    r"|\bretrying\b|\bwill retry\b|\bretry (?:in|after)\b|\bretry \d|\battempt \d{1,4} ?(?:/|of) ?\d"
    r"|\breconnect(?:ing|ed)\b|\bfalling back\b|\bignoring\b|\brecovered\b|\bskipp(?:ing|ed)\b"
    r"|\b(?:is|are|was|been) deprecated\b|\bdeprecated\b.{0,80}\b(?:use|will|since)\b"
)
"""Levels and words of lines that a program survives."""

_LEVEL = re.compile(
    r"\b(?:(?P<weak>warn|warning|info|debug|trace|(?<![a-z] )notice)"
    r"|error|fatal|critical|severe|panic|exception|failed)\b"
)
"""The level of a line is the first of these words."""

_STRONG = re.compile(
    r"^\[?[ef]\d{3,4}[ \]:]|^\[[ef] \S{1,60}\.cpp"
    r"|(?:nccl|ccom) warn|libfabric:|<warn>|\bnet/ofi\b|retries (?:exceeded|exhausted)|giving up|retry\(total=0\b"
)
"""Lines that look weak and are not: levels E and F of C++ programs; NCCL, CCOM and libfabric call their errors
warnings; urllib3 counts its retries down to 0."""

_STEP = re.compile(
    r"\bloss['\"]? ?[:=]? ?-?\d|\b\d{1,9}/\d{1,9} \[[\d:]{1,12}<[^\]]{0,40}(?:it/s|s/it)"
    r"|\b(?:global_?step|step|iter(?:ation)?)s?\b\W{0,6}\d.{0,200}(?:\bloss\b|\blr\b|/s\b|\bthroughput\b|\belapsed\b)"
)
"""A step in the words of other programs, in lower case: figures that only a program that goes on can print."""

_BAR = re.compile(
    r"\d%\s?\||[█▏▎▍▌▋▊▉━╸]{2}|\b\d{1,9}(?:/\d{1,9})? ?\[[\d:]{1,12}(?:<|, )[^\]]{0,60}(?:it/s|s/it|/s)"
    r"|\d{1,12}/\d{1,12} \[[=>.]{3,200}\]|^\s*\{['\"]\w{1,60}['\"]: ['\"]?-?[\d.]"
)
"""A bar of tqdm, Rich or Keras, and a dictionary of figures."""

GOES_ON = 2
"""Steps behind a line that show that the program went on: one may come from a rank that had not noticed yet."""

RECORD = re.compile(
    r"^(?:\[?\d{4}[-/]\w{2,3}[-/]\d|\[?[EFIW]\d{3,4}[ \]:]|\[[EFIW] |\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|ERROR|FATAL"
    r"|CRITICAL)|Traceback |={5,}|-{5,}|Exception raised from|frame #|srun: |slurmstepd: |\[ ?\d{1,9}\.\d|NVRM: "
    r"|libfabric:|\S{1,100}:\d{1,9}:\d{1,9} \[)"
)
"""The beginning of another record than the message of an exception."""

MAX_MESSAGE_LINES = 12
"""Lines below an exception that still belong to its message: pydantic and the model hub print several."""

_ERROR_LEVEL = re.compile(r"\b(?:error|fatal|critical|severe)\b")

_LAUNCHER = re.compile(
    r"torch/distributed/|torch\.distributed\.|torchelastic|\bsrun:|slurmstepd|mpirun|mpiexec|exitcode|^error_file"
    r"|exits with return code|crashed with exit code"
    r"|^={5,}$|^-{5,}$|^\S{1,200} failed$|^failures:$|^<no_other_failures>$|^root cause \(|^\[\d{1,5}\]:$"
    r"|^(?:time|host|rank|exitcode|traceback) {1,6}: |^traceback \(most recent call last\)"
)
"""Reports of a launcher on processes, and the heading of a traceback: they are not evidence themselves."""

_ENDED_BY_LAUNCHER = re.compile(r"Sending process \d{1,9} closing signal SIG|traceback\s{0,3}: Signal 15 \(SIGTERM\)")
"""Messages of torchrun about ranks that it ends itself, because another one failed or it was ended."""

_REPORTS_OF_OTHERS = frozenset(
    {"ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException", "SystemExit"}
)
"""Exceptions that a launcher raises because a process of its own failed."""

LAST_SIGNAL_EXIT_CODE = FIRST_SIGNAL_EXIT_CODE + 64
"""Exit codes above it are a program's own: it ends with -1, which is 255, or with a sum of its errors."""


@dataclass(frozen=True)
class Line:
    """One line that may be evidence."""

    text: str
    """The line as it was printed, without its rank's prefix."""
    searched: str
    """The text in lower case, cut to `MAX_LINE_LENGTH`."""
    exception: str = ""
    """Class of the Python exception that the line ends a traceback with, without its modules; empty otherwise."""
    weak: bool = False
    """Whether the program went on after it: a warning, a retry, a line that steps follow."""
    last_words: bool = False
    """Whether it belongs to the final exception of a rank: its class or a later line of its message."""
    wraps: str = ""
    """The exception that caused this one, in lower case; empty if unknown."""

    @property
    def is_error(self) -> bool:
        """Whether the program itself calls it an error, by its level."""
        level = _LEVEL.search(self.searched, 0, 200)
        named = level is not None and _ERROR_LEVEL.fullmatch(level[0]) is not None
        return named and not self.weak and not self.from_launcher

    @property
    def from_launcher(self) -> bool:
        """Whether a launcher reports on processes of its own."""
        return _LAUNCHER.search(self.searched.strip()) is not None

    @property
    def ends_program(self) -> bool:
        """Whether the line is the program's own last exception, not a launcher's report of one."""
        is_exception = self.exception.endswith(("Error", "Exception")) or bool(_QUALIFIED.match(self.text))
        return is_exception and self.exception not in _REPORTS_OF_OTHERS


def evidence_lines(texts: Iterable[str]) -> list[Line]:
    """The lines that may be evidence, in their order. Steps, frames of tracebacks and repeated lines are left out."""
    found: dict[str, Line] = {}
    handling: set[str] = set()
    steps_before: dict[str, int] = {}
    num_steps = 0
    frame_indent: int | None = None
    message = _Message()
    exceptions: dict[str, str] = {}
    wrapped: dict[str, str] = {}
    is_ignored = in_error_box = False
    for text in single_lines(texts):
        bare = RANK_PREFIX.sub("", text, count=1)
        indent = len(bare) - len(bare.lstrip())
        in_error_box = _ERROR_BOX.match(bare) is not None or (in_error_box and bare.startswith("│"))
        if _FRAME.match(text) and not in_error_box:
            frame_indent = indent
            continue
        is_source = frame_indent is not None and indent >= frame_indent + 2
        if not is_source:
            frame_indent = None
        if is_source or not bare.strip() or _ENDED_BY_LAUNCHER.search(bare):
            continue
        reports_progress = _reports_progress(text)
        if reports_progress or _STEP.search(bare.lower()):
            num_steps += 1
            message.end()
        if reports_progress:
            continue
        prefix = text[: len(text) - len(bare)]
        if _HANDLING in text or _CAUSE in text:
            wrapped[prefix] = exceptions.get(prefix, "")
            handling |= {prefix} if _HANDLING in text else set()
        is_ignored = is_ignored or _IGNORED in text
        line = _line(bare)
        if is_ignored and line.exception:
            line, is_ignored = replace(line, exception="", weak=True), False
        line = replace(line, last_words=message.includes(line, prefix=prefix))
        if line.exception:
            if prefix in handling:  # a process that is killed while it prints its traceback never gets here
                _mark_handled(found, exceptions.get(prefix, ""))
                handling.remove(prefix)
            exceptions[prefix] = line.searched
            line = replace(line, wraps=wrapped.pop(prefix, ""))
        found.setdefault(line.searched, line)
        steps_before[line.searched] = num_steps
    return [
        replace(line, weak=line.weak or num_steps - steps_before[searched] >= GOES_ON)
        for searched, line in found.items()
    ]


def is_progress(text: str) -> bool:
    """Whether a line only reports progress: figures of a step, or the bar of a terminal."""
    return _reports_progress(text) or _STEP.search(text.lower()) is not None or _BAR.search(text) is not None


class _Message:
    """The message of the newest exception, line by line: each rank's lines begin with the same prefix."""

    def __init__(self) -> None:
        self._prefix = ""
        self._room = 0

    def end(self) -> None:
        """End the exception: later lines do not belong to it."""
        self._room = 0

    def includes(self, line: Line, *, prefix: str) -> bool:
        """Whether the line is an exception that ended its rank, or continues the message of one."""
        if line.ends_program and not line.weak:
            self._prefix, self._room = prefix, MAX_MESSAGE_LINES
        elif self._room and prefix == self._prefix and not RECORD.match(line.text):
            self._room -= 1
        else:
            self._room = 0
        return self._room > 0


def rank_exit_code(texts: Sequence[str]) -> int | None:
    """The exit code of the rank that failed first, from torchrun's report or error file; None without one.

    Returns:
        128 + the signal's number for a rank that a signal ended, as a shell reports it.
    """
    return first_exit_code(single_lines(texts))


def error_file_lines(message: str | None) -> list[str]:
    """The lines of a termination message: those of torchrun's error file, if it is one, else its own.

    torchrun's error file is `{"message": {"message": "RuntimeError: …", "errorCode": 1, "extraInfo": {…}}}`, or a text
    in place of the inner object (`torch.distributed.elastic.multiprocessing.errors.error_handler`).
    """
    inner = read_result(message).get("message")
    if isinstance(inner, dict):
        info = inner.get("extraInfo")
        stack = str(info.get("py_callstack") or "") if isinstance(info, dict) else ""
        code = f'"errorCode": {inner["errorCode"]}' if "errorCode" in inner else ""
        return [*stack.splitlines(), str(inner.get("message") or ""), code]
    return str(inner).splitlines() if isinstance(inner, str) else (message or "").splitlines()


def single_lines(texts: Iterable[str]) -> Iterable[str]:
    """Lines as a terminal shows them: a progress bar returns the carriage and shares its line with what follows."""
    single = [part for text in texts for part in text.replace("\r", "\n").split("\n")][-MAX_LINES:]
    kept, room = [], MAX_CHARACTERS
    for text in reversed([part for record in single for part in _record_lines(record)]):
        kept.append(_CONTAINER_PREFIX.sub("", _cut(_ESCAPE.sub("", text) if "\x1b" in text else text)))
        room -= len(kept[-1])
        if room < 0:
            break
    kept.reverse()
    bare = [_LOGGER_PREFIX.sub("", text) for text in kept]
    is_relay = any(_RELAYED.match(line) and not _RELAYED.match(text) for line, text in zip(bare, kept, strict=True))
    return bare if is_relay else kept


def _record_lines(text: str) -> list[str]:
    """The lines of a record in JSON, as loggers and Docker write them; any other line as it is."""
    if not (text.startswith("{") and text.endswith("}") and len(text) < MAX_RECORD):
        return [text]
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return [text]
    if isinstance(log := record.get("log"), str) and "stream" in record:
        return log.splitlines()
    level = next((record[key] for key in ("level", "levelname", "severity", "lvl") if key in record), None)
    said = next((record[key] for key in ("message", "msg", "event") if isinstance(record.get(key), str)), None)
    if level is None or said is None:
        return [text]
    first, *more = said.splitlines() or [""]
    details = [
        record[key] for key in ("exc_info", "exception", "traceback", "stack") if isinstance(record.get(key), str)
    ]
    return [f"{level}: {first}", *more, *(line for detail in details for line in detail.splitlines())]


def _cut(text: str) -> str:
    half = MAX_LINE_LENGTH // 2
    return text if len(text) <= MAX_LINE_LENGTH else f"{text[:half]} {text[-half:]}"


def _line(bare: str) -> Line:
    searched = bare.lower()
    match = _EXCEPTION.match(bare)
    exception = match["inner"] or match["type"].rpartition(".")[2] if match else ""
    if exception and (wrapped := _WRAPPED.search(bare)):
        exception = wrapped["type"]
    if exception.endswith(("Error", "Exception")):
        return Line(bare.strip(), searched, exception)
    weak = _is_weak(searched)
    if not exception and not weak and (logged := _LOGGED_EXCEPTION.search(bare)):
        exception = logged["type"]
    return Line(bare.strip(), searched, exception, weak)


def _is_weak(searched: str) -> bool:
    level = _LEVEL.search(searched, 0, 200)
    weak = _WEAK.search(searched) is not None or (level is not None and level["weak"] is not None)
    return weak and _STRONG.search(searched) is None


def _mark_handled(found: dict[str, Line], searched: str) -> None:
    """Mark an exception as handled: another one ended its process."""
    if searched in found:
        found[searched] = replace(found[searched], exception="", last_words=False)


def _reports_progress(text: str) -> bool:
    if not ("step" in text.lower() or "{" in text):
        return False
    return is_relayed(text) or metrics_figures(text) is not None or report_figures(text) is not None
