"""The general reader: finds the steps in lines of any form; pure.

A line is a step's if it names a counter and a figure (`rows.py`) and if a second line of the same shape has a higher
number. Then the first one counts as well. A step with the training's loss needs no second line. The reader holds to
the shape. If lines of the shape stay away while others rise, it changes to those: a program's format may change on the
way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice, pairwise

from trainflow.progress.ansi import without_colours
from trainflow.progress.numbering import numbered
from trainflow.progress.pairs import LONGEST_TEXT, Pair, Text, parse_text
from trainflow.progress.rows import COUNTING, NOTHING, Counter, Row, is_duration, line_counter, line_row
from trainflow.progress.vocabulary import Kind, name_meaning
from trainflow.workflow.learned_progress import EpochCounter, LearnedProgress, Sighting

TO_LEARN = 2
"""Rising lines of a shape until it is read, if none is read."""

TO_CHANGE = 3
"""The same while another shape is read, which has shown no line meanwhile."""

TO_GO_BACK = 5
"""The same for a shape whose numbers lie below the newest step."""

TO_TRUST = 20
"""The same for numbers without a name that rise by one: the numbers of a few processes do so too."""

MOST_SHAPES = 8
"""Most shapes that may be learned at a time."""

MOST_FIGURES = 12
"""Figures that are kept of a line whose shape is not read yet."""

LONGEST_GAP = 6
"""Lines without a figure within a record."""

LARGEST_RECORD = 60
"""Numbers of a record."""

MOST_COLUMNS = 40

LONGEST_HEADING = 400
"""Characters of a line that may be the first one of a heading; the run keeps it between two polls."""

_STEMS = (
    *(
        "loss",
        "step",
        "iter",
        "epoch",
        "batch",
        "train",
        "valid",
        "accura",
        "error",
        "rmse",
        "auc",
        "reward",
        "update",
        "episode",
        "round",
    ),
    *("learn", "ppl", "perplex", "cost", "mse", "nll", "itr", "ep.", "elbo", "objective", "score", "return", "tokens"),
    *(
        "损失",
        "손실",
        "損失",
        "потери",
        *("verlust", "perte", "pérdida", "perda", "perdita", "kayıp", "kayip", "strata", "verlies", "förlust"),
        *("kerugian", "veszteség", "απώλεια", "خسارة", "ロス", "потеря", "лосс", "втрат"),
        " acc",
        "_acc",
        "xent",
        "timestep",
        "dice",
        "bleu",
        " it ",
        "i=",
        *("tick", "sweep", "cycle", "pass", "rollout", "game", "gen", "traject", "frame", "kimg", "phase", "average"),
        *("bpd", "bits", "energy", "residual", "regret", "fid", "n_eval", "func"),
    ),
)
"""Pieces of words. Each line of a step, or of a part of one, has one of them; almost every other line lacks them."""

_CELLS = re.compile(r"[|│┃║]")
_COMMA = re.compile(",")
_SEMICOLON = re.compile(";")
_WIDE = re.compile(r"\s{2,}|\t")
_WIDE_CELL = re.compile(r"\S+(?: \S+)*")
_NUMBER_CELL = re.compile(
    r"([-+]?\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|-?inf)(?:/(\d+))?(%|[A-Za-z]{1,3})?\Z", re.IGNORECASE
)


_STARTS_NUMBER = re.compile(r"[-+]?\d|-\Z|nan|-?inf", re.IGNORECASE)
_REMARK = re.compile(r"(?<=\w) ?\([^()]{0,40}\)\Z")
"""Behind a number or a name in brackets: `10 (0.03%)`, `Step (% Done)`."""

_FIRST_OF_LIST = re.compile(r"[\[(]\s*([^\s,\])]{1,40})[^\])]{0,400}[\])]\Z")
"""A cell of several numbers, such as the losses of several outputs."""


# Decision 87: programs print steps in many forms, and one reader finds them by their counters.
class GeneralReader:
    """Reads lines in their order, and learns their shape.

    Args:
        learned: What earlier lines have shown; the reader changes it.
    """

    def __init__(self, learned: LearnedProgress) -> None:
        self.learned = learned

    def read(self, line: str, logged_at: datetime, *, newest_step: int | None, reads_other: bool) -> list[Sighting]:
        """The steps that a line shows, or that it proves earlier lines to have shown.

        Args:
            line: The line, or one state of a bar.
            logged_at: Its time.
            newest_step: The newest step that was read.
            reads_other: A library's format is being read.
        """
        found: list[Sighting] = []
        for row in self._rows(line):
            found += self._judged(row, logged_at, newest_step, reads_other=reads_other)
        return found

    def may_read(self, lower: str) -> bool:
        """Whether a line in lower case may be a step's or a part of one."""
        if self.learned.columns or self.learned.record:
            return True
        return any(map(lower.__contains__, _STEMS))

    def forget(self) -> None:
        """Forget the lines of other shapes: a step was read."""
        if self.learned.waiting:
            self.learned.waiting.clear()
            self.learned.counters.clear()

    def unfinished(self) -> tuple[int, dict[str, str]] | None:
        """Step and figures of a record that has not ended, of the shape that is read."""
        row = self._record_row()
        if row is None or row.shape != self.learned.shape:
            return None
        return _number(replace(self.learned.counter), row), row.figures

    # --- lines to rows ---

    def _rows(self, line: str) -> Iterator[Row]:
        text = parse_text(line)
        row = self._table_row(line) if self.learned.columns else None
        row = row or line_row(text, self.learned.epoch)
        if row is not None and row.preference < NOTHING:
            yield from self._ended_record()
            yield row
            return
        if not text.pairs:
            self._heading_of_table(line)
        yield from self._record(line, text)
        if row is not None:
            yield row

    def _record(self, line: str, text: Text) -> Iterator[Row]:
        """Rows of records of several lines: a counter, and figures in the lines around it."""
        learned = self.learned
        pairs = [pair for pair in text.pairs if (pair.name or pair.total) and not is_duration(pair)]
        if text.is_evaluation and not text.is_training:
            pairs = []
        counter = line_counter(pairs)
        if counter is not None and counter.kind == Kind.EPOCH and not counter.is_evaluation:
            learned.epoch = counter.batch
        measures = [pair for pair in pairs if Kind.EPOCH < name_meaning(pair.name).kind < Kind.OTHER]
        if counter is None and not measures:
            learned.gap += 1
            if learned.record and pairs and len(learned.record) < LARGEST_RECORD:
                learned.record += [pair[:3] for pair in pairs if pair.name]
            elif learned.gap > LONGEST_GAP or (_ends_record(line) and not self._has_only_counter()):
                yield from self._ended_record()
            return
        held = self._record_counter()
        if counter is not None and counter.kind == Kind.EPOCH and held is not None and held.kind < Kind.EPOCH:
            learned.gap = 0  # epochs within an iteration
            return
        known = {name for name, _, _ in learned.record if name}
        is_repeated = any(pair.name in known for pair in pairs)
        if is_repeated and counter is None and name_meaning(measures[0].name).is_evaluation:
            return
        if is_repeated or (counter is not None and held is not None):
            yield from self._ended_record()
        learned.gap = 0
        if len(learned.record) < LARGEST_RECORD:
            learned.record += [pair[:3] for pair in pairs]

    def _record_counter(self) -> Counter | None:
        return line_counter([Pair(*entry) for entry in self.learned.record])

    def _has_only_counter(self) -> bool:
        return self._record_counter() is not None and self._record_row() is None

    def _record_row(self) -> Row | None:
        if len(self.learned.record) < 2:
            return None
        row = line_row(Text([Pair(*entry) for entry in self.learned.record]), self.learned.epoch)
        return row if row is not None and row.preference < NOTHING else None

    def _ended_record(self) -> Iterator[Row]:
        if not self.learned.record:
            return
        row = self._record_row()
        self.learned.record, self.learned.gap = [], 0
        if row is not None:
            yield row

    # --- tables ---

    def _heading_of_table(self, line: str) -> None:
        text = without_colours(line[:LONGEST_TEXT]).rstrip()
        above, self.learned.heading = self.learned.heading, text if len(text) <= LONGEST_HEADING else ""
        possible = [
            tuple(_COLUMN_NAMES.get(cell, cell) for cell in columns)
            for columns in (_heading_columns(text), _joined_headings(above, text))
            if 2 <= len(columns) <= MOST_COLUMNS and all(len(cell) <= 40 for cell in columns)
        ]
        found = next(filter(_has_figure, possible), None)
        if found is None and not _has_figure(self.learned.columns):
            found = next((columns for columns in possible if _leads_with_counter(columns, text)), None)
        self.learned.columns = found or self.learned.columns

    def _table_row(self, line: str) -> Row | None:
        columns, text = self.learned.columns, without_colours(line[:LONGEST_TEXT]).strip()
        if not text or not (text[0].isdigit() or text[0] in "|│┃║"):
            return None
        cells = _row_cells(text, len(columns))
        lacks_remark = len(cells) == len(columns) - 1 and name_meaning(columns[-1]).kind == Kind.OTHER
        if len(cells) < len(columns) and not (lacks_remark and all(map(_NUMBER_CELL.match, cells))):
            return None
        pairs = []
        for name, cell in zip(columns, cells, strict=False):
            if number := _NUMBER_CELL.match(_FIRST_OF_LIST.sub(r"\1", _REMARK.sub("", cell).rstrip(":"))):
                pairs.append(Pair(name, number[1].lower(), number[2], number[3] or ""))
        is_numeric = all(map(_STARTS_NUMBER.match, cells[:-1])) and any("." in cell for cell in cells)
        return line_row(Text(pairs), self.learned.epoch, is_table=is_numeric and not _has_figure(columns))

    # --- shapes ---

    def _judged(self, row: Row, logged_at: datetime, newest: int | None, *, reads_other: bool) -> list[Sighting]:
        learned = self.learned
        if row.shape == learned.shape and not reads_other:
            self.forget()
            step = _number(learned.counter, row)
            return [Sighting(logged_at, step, row.figures, _length(learned.counter, row, step))]
        rising = self._rising(row, logged_at)
        if rising is None or len(rising) < self._needed(row, rising, newest, reads_other=reads_other):
            return []
        learned.shape, learned.preference = row.shape, row.preference
        learned.counter = learned.counters[row.shape]
        self.forget()
        return rising

    def _rising(self, row: Row, logged_at: datetime) -> list[Sighting] | None:
        """The rising lines of the row's shape, the row included."""
        learned = self.learned
        if row.shape not in learned.waiting and len(learned.waiting) == MOST_SHAPES:
            oldest = next(iter(learned.waiting))
            del learned.waiting[oldest], learned.counters[oldest]
        counter = learned.counters.setdefault(row.shape, EpochCounter())
        seen = learned.waiting.setdefault(row.shape, [])
        step = _number(counter, row)
        if seen and step <= seen[-1].step:
            if step < seen[-1].step:
                seen.clear()
                learned.counters[row.shape] = EpochCounter()
                step = _number(learned.counters[row.shape], row)
            else:
                seen.pop()
        figures = dict(islice(row.figures.items(), MOST_FIGURES))
        seen.append(Sighting(logged_at, step, figures, _length(counter, row, step)))
        return seen

    def _needed(self, row: Row, rising: list[Sighting], newest: int | None, *, reads_other: bool) -> int:
        if row.is_weak:
            is_dense = all(b.step - a.step == 1 for a, b in pairwise(rising))
            return TO_TRUST if is_dense else TO_CHANGE
        if row.preference == NOTHING:
            return TO_CHANGE if self.learned.shape is None and not reads_other else TO_GO_BACK
        if (self.learned.shape is None or self.learned.preference == NOTHING) and not reads_other:
            return 1 if row.is_certain else TO_LEARN
        if newest is not None and rising[-1].step <= newest:
            return TO_GO_BACK
        return TO_LEARN if row.preference < self.learned.preference and not reads_other else TO_CHANGE


_COLUMN_NAMES = {"#": "step", "E": "epoch"}
"""Headings of spaCy's table."""


def _number(counter: EpochCounter, row: Row) -> int:
    return numbered(counter, row.batch, row.total, row.epoch, restarts=row.restarts)


def _length(counter: EpochCounter, row: Row, step: int) -> int | None:
    """Last step of the training; None where the line's total is known to be that of an epoch."""
    length = row.total if counter.is_global else row.length
    return length if length is not None and step <= length else None


def _heading_columns(text: str) -> list[str]:
    stripped = text.strip()
    cells = stripped.strip("# ").split() if stripped.startswith("# ") else _cells(stripped)
    return [_REMARK.sub("", cell).strip("\"'") for cell in cells]


def _joined_headings(above: str, below: str) -> list[str]:
    """The columns of a heading of two lines, whose words stand one below the other."""
    if not above or len(below) > LONGEST_HEADING:
        return []
    if _CELLS.search(above):
        rows = [_CELLS.split(line.strip())[1:-1] for line in (above, below)]
        same = len(rows[0]) == len(rows[1])
        return [f"{a.strip()} {b.strip()}".strip() for a, b in zip(*rows, strict=True)] if same else []
    columns = [(cell.start(), cell.end(), [cell[0]]) for cell in _WIDE_CELL.finditer(above)]
    last: tuple[int, int, list[str]] | None = None
    last_end = -2
    for word in re.finditer(r"\S+", below):
        over = next((column for column in columns if word.start() < column[1] and column[0] < word.end()), None)
        if over is None and last is not None and word.start() == last_end + 1:
            over = last
        if over is None:
            over = (word.start(), word.start(), [])
            columns.append(over)
        over[2].append(word[0])
        last, last_end = over, word.end()
    return [_REMARK.sub("", " ".join(words)) for _, _, words in sorted(columns)]


def _has_figure(columns: tuple[str, ...]) -> bool:
    kinds = [name_meaning(name).kind for name in columns]
    return bool(kinds) and min(kinds) <= Kind.EPOCH and any(Kind.EPOCH < kind < Kind.RATE for kind in kinds)


def _leads_with_counter(columns: tuple[str, ...], text: str) -> bool:
    """Whether a heading with no known figure may be a training's: its first column counts."""
    is_separated = bool(_WIDE.search(text.strip()) or _CELLS.search(text) or "," in text)
    return len(columns) > 2 and COUNTING.issuperset(columns[0].lower().replace("_", " ").split()) and is_separated


def _row_cells(text: str, num_columns: int) -> list[str]:
    """The cells of a row, separated as they can be for this number of columns."""
    if _CELLS.match(text) or ("|" in text and "%|" not in text):
        return _cells(text)
    for separator in (_COMMA, _SEMICOLON, _WIDE):
        cells = separator.split(text)
        if len(cells) == num_columns:
            return [cell.strip() for cell in cells]
    return [cell for cell in re.split(r"[,\s]+", text) if cell]


def _cells(text: str) -> list[str]:
    stripped = text.strip()
    if _CELLS.search(stripped):
        cells = _CELLS.split(stripped)
    elif "," in stripped and "  " not in stripped:
        cells = stripped.split(",")
    elif ";" in stripped and " " not in stripped:
        cells = stripped.split(";")
    elif _WIDE.search(stripped):
        cells = _WIDE.split(stripped)
    else:
        cells = stripped.split()
    return [cell.strip() for cell in cells if cell.strip()]


def _ends_record(line: str) -> bool:
    """Whether a line is empty, a rule, or the closing bracket of an object."""
    return not any(character.isalnum() for character in line[:LONGEST_TEXT])
