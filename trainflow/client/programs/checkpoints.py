"""The checkpoints of a program: their names below the run's folder, and the words that continue from one."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainflow.client.programs.command_lines import CommandLine, Style
from trainflow.client.programs.libraries import Library
from trainflow.client.programs.options import Flag
from trainflow.client.programs.outputs import FOLDER_WRITERS, Output, uses_behind, without_option
from trainflow.client.programs.path_calls import SEARCHES, TESTS
from trainflow.client.programs.path_uses import Condition, Use
from trainflow.protocol.checkpoint_pattern import ANY_FOLDERS
from trainflow.protocol.placeholders import STEP, WORKING_FOLDER

RESUME_NAMES = (
    *("resume_from_checkpoint", "resume_from", "resume_path", "resume_ckpt", "resume_checkpoint", "resume_file"),
    *("resume", "ckpt_path", "restore_from", "restore_path", "restore_file", "continue_from", "load_checkpoint"),
    *("load_ckpt", "checkpoint_resume", "load_from", "checkpoint_file"),
)
"""Names that programs give to the flag for a checkpoint to continue from, the most specific first."""

KNOWN_RESUMES = RESUME_NAMES[:2]
"""Those whose value always is the path of a checkpoint, whatever the program makes of it."""

RESUMES = re.compile(r"resume|restore|continue|ckpt|checkpoint|snapshot|load")
"""Parts of the name of a flag that counts if a model is read from its value."""

STARTS_ANEW = re.compile(
    r"pretrain|teacher|finetune|eval|model_name|_every|interval|steps|freq|weights|init|data|cfg|config"
)
"""Parts of names of flags that load a model without continuing a training."""

FINAL = re.compile(r"best|final|optim|sched|rng|config|args|metric|log|result|vocab|token|sample|score|stats|tmp")
"""Parts of names of other files than checkpoints to continue from."""

LIKE_CHECKPOINT = re.compile(
    r"ckpt|checkpoint|snapshot|last|latest|epoch|step|iter|\.(pt|pth|tar|ckpt|bin|safetensors)$"
)


@dataclass(frozen=True)
class Checkpoints:
    """The spec's section `checkpoint`, as far as the source shows it."""

    path: str | None = None
    """Pattern below the run's folder; None if no call shows one."""
    marker: str | None = None
    resume: tuple[str, ...] = ()
    """Words that continue from a checkpoint."""
    reason: str = ""
    is_certain: bool = False
    """Whether both are known, so that a spec may have them without a question."""


def resume_flag(flags: Mapping[str, Flag], uses: Sequence[Use], given: Mapping[str, Output]) -> Flag | None:
    """The flag for a checkpoint to continue from; a name comes before a use."""
    candidates = [flag for flag in flags.values() if flag.name not in given and not flag.alias_for]
    for name in RESUME_NAMES:
        for flag in candidates:
            if flag.attribute.rpartition(".")[2] == name and (flag.may_be_path or flag.is_switch):
                return flag
    return next((flag for flag in candidates if _is_loaded(flag, uses)), None)


def _is_loaded(flag: Flag, uses: Sequence[Use]) -> bool:
    name = flag.attribute.rpartition(".")[2]
    if not flag.may_be_path or not RESUMES.search(name) or STARTS_ANEW.search(name):
        return False
    return _is_read(flag, uses)


def checkpoints(
    program: CommandLine,
    flags: Mapping[str, Flag],
    uses: Sequence[Use],
    given: Mapping[str, Output],
    library: Library | None,
    replaced: Collection[str] = (),
) -> Checkpoints:
    """The checkpoints of a program.

    Args:
        program: Its command line.
        flags: Its flags.
        uses: The paths that it writes to and reads from.
        given: Its outputs.
        library: The library that has its training loop.
        replaced: Attributes that the program sets itself, such as `output_dir` in `args.output_dir = join(...)`.
    """
    flag = resume_flag(flags, uses, given)
    words = _words(flag, program.style, uses)
    if library is not None and library.checkpoints is not None:
        path = _library_pattern(library.checkpoints, [flags[name] for name in given], replaced)
        return Checkpoints(path, library.last_file, words, "the library's", is_certain=bool(words))
    found = next(iter(sorted(_patterns(uses, flags, given), key=_rank)), None)
    if found is None:
        return Checkpoints(resume=words)
    path, use = found
    reason = f"{use.function} in line {use.line} writes it"
    if flag is not None and not flag.is_switch and (_is_read(flag, uses) or flag.attribute in KNOWN_RESUMES):
        return Checkpoints(path, None, words, reason, is_certain=True)
    own = _words_of_own_reading(uses, use, flags, program.style)
    if own is None:
        return Checkpoints(path, None, words, reason)
    return Checkpoints(path, None, own, f"{reason}, and the program reads it by itself", is_certain=True)


def _library_pattern(pattern: str, outputs: Sequence[Flag], replaced: Collection[str]) -> str:
    """The library's pattern, in any folder where the program chooses the place or moves the output."""
    if not outputs:
        return f"{WORKING_FOLDER}/{ANY_FOLDERS}/{pattern}"
    is_moved = any(flag.attribute.rpartition(".")[2] in replaced for flag in outputs)
    return f"{ANY_FOLDERS}/{pattern}" if is_moved else pattern


def _words_of_own_reading(
    uses: Sequence[Use], written: Use, flags: Mapping[str, Flag], style: Style
) -> tuple[str, ...] | None:
    """Words that make a program read the file that it has written; None if the source does not show that it does."""
    names = {flag.attribute: flag for flag in flags.values() if not flag.alias_for}
    for use in uses:
        if not use.is_opened or not _is_same(use, written):
            continue
        conditions = [each for each in use.conditions if each.option != use.path.option]
        if not (conditions or use.is_tried or _is_looked_for(use, uses)):
            continue  # the first start would fail: it is read after it was written, such as the best model at the end
        if all(each.option in names for each in conditions):
            words = (_condition_words(names[str(each.option)], each, style) for each in conditions)
            return tuple(word for some in words for word in some)
    return None


def _is_same(one: Use, other: Use) -> bool:
    """Whether two uses are at the same path, as in `out/last.pt` and `./out/last.pt`."""
    paths = [(use.path.option, posixpath.normpath(use.path.tail)) for use in (one, other)]
    return paths[0] == paths[1]


def _is_looked_for(read: Use, uses: Sequence[Use]) -> bool:
    """Whether the program looks if a file is there."""
    return any(use.function in TESTS and _is_same(use, read) for use in uses)


def _condition_words(flag: Flag, condition: Condition, style: Style) -> tuple[str, ...]:
    """Words that meet a condition; a flag whose own default meets it needs none."""
    value = "True" if condition.value is None else condition.value
    if (flag.default == condition.value and flag.default is not None) or (condition.value is None and flag.default):
        return ()
    return _written(flag, value, style)


def _written(flag: Flag, value: str, style: Style) -> tuple[str, ...]:
    if style == "overrides":
        return (f"{flag.name}={value}",)
    dashed = flag.name if flag.name.startswith("-") else f"--{flag.name}"
    if style == "assignments":
        return (f"{dashed}={value}",)
    return (dashed,) if flag.is_switch else (dashed, value)


def _words(flag: Flag | None, style: Style, uses: Sequence[Use]) -> tuple[str, ...]:
    if flag is None:
        return ()
    return _written(flag, "{checkpoint}/.." if _is_searched(flag, uses) else "{checkpoint}", style)


def _is_searched(flag: Flag, uses: Sequence[Use]) -> bool:
    """Whether the program looks for checkpoints in the folder that the flag names, and opens nothing there itself."""
    own = uses_behind(flag, uses)
    is_opened = any(use.is_opened for use in own)
    return not is_opened and any(use.function in SEARCHES and not use.path.tail for use in own)


def _is_read(flag: Flag, uses: Sequence[Use]) -> bool:
    return any(use.is_opened for use in uses_behind(flag, uses))


def _patterns(uses: Sequence[Use], flags: Mapping[str, Flag], given: Mapping[str, Output]) -> Iterator[tuple[str, Use]]:
    """Patterns of the checkpoints below the run's folder, each with the call that writes one."""
    beside = set(without_option(uses))
    places = {flags[name].attribute: output.path for name, output in given.items()}
    for use in (use for use in uses if use.kind == "checkpoint"):  # no folder of tensors or of text
        if use.path.option in places:
            place = places[use.path.option]
            path = f"{place}/{use.path.tail}" if _is_inside(use) else place + use.path.tail
        elif use in beside and not use.path.tail.startswith(("/", "~", "*")):
            path = f"{WORKING_FOLDER}/{use.path.tail}"
        else:
            continue
        pattern = _one_step(posixpath.normpath(path))
        name = posixpath.basename(pattern)
        if pattern.startswith(("..", "/")) or name == "*" or pattern.replace(STEP, "").strip("./*") == "":
            continue
        if LIKE_CHECKPOINT.search(pattern) and (STEP in name or not FINAL.search(name)):
            yield pattern, use


def _is_inside(use: Use) -> bool:
    return use.path.tail.startswith("/") or use.function in FOLDER_WRITERS


def _one_step(path: str) -> str:
    """A pattern with one number of steps, the last one, and `*` for what is not known."""
    parts = [re.sub(r"[{}\[\]?]", "*", part) for part in path.split(STEP)]
    text = parts[0] if len(parts) == 1 else "*".join(parts[:-1]) + STEP + parts[-1]
    return re.sub(r"(?<![^/])\*(?:[-_.]?\*)*(?=/)", "*", re.sub(r"\*+", "*", text))


def _rank(found: tuple[str, Use]) -> tuple[bool, bool, bool, int, str]:
    pattern, use = found
    named = re.search("ckpt|checkpoint|snapshot|last|latest", pattern) is not None
    return STEP not in pattern, not named, "epoch" in pattern, use.line, pattern
