"""Names and numbers of a line of text, whatever stands between them; pure and linear in the length of the line.

The functions know forms such as `step=10`, `Step 10, Loss: 2.31`, `Epoch: [0][10/100]`, `"loss": 2.5`,
`loss tensor(2.5, device='cuda:0')`, `| train/loss | 2.5 |` and `200/ 2983 batches`. Dates, times, addresses and the
numbers of source lines are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from trainflow.progress.ansi import without_colours
from trainflow.progress.vocabulary import (
    COUNTERS,
    EVALUATION,
    PLURALS,
    PREPOSITIONS,
    TRAINING,
    Kind,
    is_unit,
    name_meaning,
    word_set,
)
from trainflow.protocol.speed_units import speed_name

LONGEST_TEXT = 2000
"""Characters of a line that are read."""

MOST_WORDS = 8
"""Most words of a name."""


class Pair(NamedTuple):
    """A number, with the name that stands before it."""

    name: str
    """As it is printed; empty for a number without a name."""
    value: str
    """The number as Python reads it."""
    total: str | None = None
    """The other number of `10/100`."""
    unit: str = ""
    place: str = ""
    """Character before the number if that is a bracket or a sign, or `^` at the beginning of the line."""
    behind: str = ""
    """The two characters behind the number."""


@dataclass
class Text:
    """Names and numbers of a line, and words about the line as a whole."""

    pairs: list[Pair] = field(default_factory=list)
    is_evaluation: bool = False
    """Words before the first metric name an evaluation."""
    is_training: bool = False
    has_lead: bool = False
    """A phrase stands before the first name, as in `Saved the model: step 10`."""
    speeds: dict[str, str] = field(default_factory=dict)
    """Numbers with the unit of a speed, by the name that the unit gives them: `samples_per_second`."""


_LIMITS = word_set("every per max for of in last total over next warmup num all")
"""Words that make a number with a counter's name a limit."""

_INTEGER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:_\d{3})*)"
_DATE = r"(?:(?:19|20)\d\d/\d\d?/\d\d?|\d\d?/\d\d?/(?:(?:19|20)\d\d|\d\d))(?!\d)"
_EXPONENT = r"(?:[eE][-+]?\d+|[dD][-+]\d\d+)"
"""Fortran writes the second form."""
_TOKEN = re.compile(
    rf"""
    (?P<wrapper> \b(?:[A-Za-z]\w{{0,20}}\.){{0,2}}
                 (?:tensor|Tensor|array|Array|DeviceArray|Variable|Parameter|b?float\d{{0,3}}|u?int\d{{0,2}}|Decimal)\(\s*
               | <tf\.Tensor:\ shape=\(\),\ dtype=\w{{1,20}},\ numpy= )
  | (?P<triple> (?!{_DATE})(?P<outer>\d{{1,6}})/(?P<inner>\d{{1,9}})/(?P<whole>\d{{1,9}})(?![/\d.-]) )
  | (?P<clock> \d+(?:[-:/.]\d+){{2,}}(?:[.,]\d+)?(?:T[\d:.,]+)?(?:Z\b|[+-]\d\d:?\d\d)?
             | \d{{1,3}}:\d\d(?:[.,]\d+)?(?![\d.,]) )
  | (?P<leader> \.{{3,}} | …+ )
  | (?P<range> \d+-\s{{0,6}}(?P<end>\d+)(?=[A-Za-z\s\],]) )
  | (?P<number> (?P<comma>(?<=[=:\s])[-+]?\d+,(?:\d{{1,2}}|\d{{4,}})(?![\d,.\]]))
              | (?P<digits>(?:(?<![\w.)\]])[-+])?(?:{_INTEGER}(?:\.\d+|\.(?![\w.]))?|\.\d+){_EXPONENT}?)
                (?:\s?/\s*(?P<total>{_INTEGER})(?![.\d]|:\d))? )
    (?P<unit> %|[^\W\d][\w/%]* )?
  | (?P<modifier> \((?:[^\W\d][A-Za-z_ %./]{{0,40}}|(?:for|per|over|of|in)\s[\w\ %./]{{1,40}})\) )
  | (?P<word> [^\W\d][\w@'./+*-]* )
  | (?P<space> \t|\s{{2,}} )
  | (?P<other> [^\w\s] )
    """,
    re.VERBOSE,
)
_TRAILING_NUMBER = re.compile(r"([^\W\d]+?)[-_.]?(\d+)(?:/(\d+))?\Z")
_TRAILING_DECIMAL = re.compile(r"([^\W\d]+)-(\d+\.\d+)\Z")
_DECIMAL_BEHIND = re.compile(r" \d{1,9}\.\d")
_SOURCE_FILE = re.compile(r"\.(?:py|cpp|cc|c|h|hpp|cu|rs|go|java|js|ts)\Z")
_BEFORE_DIGIT = re.compile(r"(?<=[\u4e00-\u9fff])(?=\d)")
"""Chinese is written without spaces."""
_ORDINAL = re.compile(r"第\s?(\d{1,15})\s?(?:个|個)?\s?([\u3040-\u30ff\u4e00-\u9fff]{1,6}|[A-Za-z]{2,12})")
"""Chinese and Japanese put the number before its name: 第 10 步."""
_ENGLISH_ORDINAL = re.compile(r"(?<![\w.])(\d{1,15})(?:st|nd|rd|th) ([A-Za-z]{2,12})\b")
_WIDE_PUNCTUATION = str.maketrans("：＝，；（）［］／．％", ":=,;()[]/.%")
_CELLS = re.compile(r"[|│┃║]")
_FLOATED = re.compile(r"\d\.\d{1,9}[eE]\+\d{1,2}\Z")
_THOUSANDS = {"k": 1_000, "K": 1_000, "M": 1_000_000}
_NOT_FINITE = {"nan": "nan", "inf": "inf", "infinity": "inf"}
_KEPT = frozenset("\"'#`*")
"""Characters between a name and its number that mean nothing."""
_DURATIONS = frozenset(("ms", "us", "µs", "ns", "sec", "secs", "seconds"))
_BASES = frozenset(("for", "per", "over", "of", "in"))
"""First words of a remark about the numbers that a figure is computed from: `loss (for 1 batch)`."""
_VERBS = frozenset(("is", "was", "equals", "became"))
_OPENING = frozenset("[(")
_PLACES = frozenset("[(^#@<-|")


def parse_text(line: str) -> Text:
    """The names and numbers of a line."""
    text = without_colours(line[: 2 * LONGEST_TEXT])[:LONGEST_TEXT].replace("\u2800", " ").strip()
    if not text.isascii():
        text = _ORDINAL.sub(r"\2 \1", text.translate(_WIDE_PUNCTUATION))
        text = _BEFORE_DIGIT.sub(" ", text)
    if "th " in text or "st " in text or "d " in text:
        text = _ENGLISH_ORDINAL.sub(r"\2 \1", text)
    cells = [cell for cell in map(str.strip, _CELLS.split(text)) if cell] if text[:1] in "|│┃║" and text else []
    if len(cells) == 2:
        text = ": ".join(cells)
    return _Scan(text).run()


class _Scan:
    """One pass over the tokens of a line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.result = Text()
        self._words: list[str] = []
        """Words of the name whose number may follow."""
        self._separated = False
        """Whether `:` or `=` has followed the words."""
        self._waiting = ""
        """Metric whose number comes behind a counter's: `loss at step 10: 2.5`."""
        self._metric = ""
        """Metric that is named without a number, as in `"name": "loss", "value": 2.5`."""
        self._behind_number = False
        self._before = "^"

    def run(self) -> Text:
        for token in _TOKEN.finditer(self._text):
            kind = token.lastgroup
            if token["number"] is not None:
                self._number(token)
            elif kind == "triple":
                self._add(token["outer"], None, "", token.end())
                self._add(token["inner"], token["whole"], "", token.end())
            elif kind == "range":
                self._add(token["end"], None, "", token.end())
            elif kind == "word":
                self._word(token[0], token.end())
            elif kind == "modifier":
                self._modifier(token[0])
            elif kind == "leader":
                self._leader(token.end())
            elif kind == "clock":
                self._drop_words()
            elif kind == "space":
                if self._words and not self._separated and not self._next_is_value(token.end()):
                    self._drop_words()
            elif kind == "other":
                self._other(token[0], token.start())
            if kind != "space":
                self._before = token[0][-1]
        self._drop_words()
        return self.result

    def _number(self, token: re.Match[str]) -> None:
        comma = token["comma"]
        value = comma.replace(",", ".") if comma is not None else _plain(token["digits"])
        self._add(value, token["total"], token["unit"] or "", token.end())

    def _add(self, value: str, total: str | None, unit: str, end: int) -> None:
        self._note_speed(unit, value)
        name, place = " ".join(self._words), self._before if self._before in _PLACES else ""
        behind = self._text[end : end + 2]
        if unit.lower() in COUNTERS and not name.lower().endswith(("loss", "lr")):
            name, unit = unit, ""
        if name and _SOURCE_FILE.search(name):
            self._clear()
            return
        if not name and self._waiting and self._separated:
            name, self._waiting = self._waiting, ""
        if self._words and self._words[-1].lower() in PREPOSITIONS:
            name, self._waiting = "", " ".join(self._words[:-1])
        if name.lower() == "value" and self._metric:
            name = self._metric
        meaning = name_meaning(name) if name else None
        if meaning is not None and meaning.is_counter and (meaning.metric_in_front or self._waiting == ""):
            self._waiting = meaning.metric_in_front
        total = total.replace(",", "").replace("_", "") if total else None
        if meaning is not None and meaning.is_counter:
            value, unit = _counted(value.removesuffix("."), unit)
        self.result.pairs.append(Pair(name, value, total, unit, place, behind))
        self._clear()
        self._behind_number = True

    def _word(self, word: str, end: int) -> None:
        lower = word.lower().rstrip(".")
        if self._words and lower in _NOT_FINITE:
            sign = "-" if self._before == "-" else ""
            self._add(sign + _NOT_FINITE[lower], None, "", end)
            return
        is_name = lower in ("frames", "tokens") and self._text[end : end + 1] in (":", "=")
        if self._behind_number and not self._words and not is_name:
            is_glued = lower in COUNTERS and self._before.isdigit() and self._text[end - len(word) - 1] != " "
            if (lower in PLURALS or is_glued) and self._names_last_number(lower):
                return
            is_speed = "/" in word and not self._is_speed_of_next(word, end)
            if is_speed and self.result.pairs:
                self._note_speed(word, self.result.pairs[-1].value)
            if is_unit(lower) and ("/" not in word or is_speed):
                if lower in _DURATIONS and not self._next_is_value(end):
                    self._is_duration(lower)
                return
        if lower in _VERBS and (self._words or self._waiting):
            self._separated = True
            return
        if self._separated:
            self._drop_words()
        numbered = _TRAILING_NUMBER.match(word)
        if numbered is not None and len(numbered[1]) > 1 and name_meaning(numbered[1]).is_counter:
            self._words.append(numbered[1])
            self._add(numbered[2], numbered[3], "", end)
            return
        measured = _TRAILING_DECIMAL.match(word)
        if measured is not None and Kind.EPOCH < name_meaning(measured[1]).kind < Kind.RATE:
            self._words.append(measured[1])
            self._add(measured[2], None, "", end)
            return
        self._words.append(word.rstrip("./-*'"))
        del self._words[:-MOST_WORDS]

    def _is_duration(self, unit: str) -> None:
        """Give a figure its unit: `cost 4.85 ms` is a time."""
        last = self.result.pairs[-1] if self.result.pairs else None
        if last is not None and last.name and name_meaning(last.name).kind > Kind.EPOCH:
            self.result.pairs[-1] = last._replace(unit=unit)

    def _is_speed_of_next(self, word: str, end: int) -> bool:
        """Whether a unit behind a number is the name of the next number: `loss=0.5 tokens/sec=1200`."""
        if "/" not in word or speed_name(word) is None:
            return False
        last = self.result.pairs[-1] if self.result.pairs else None
        is_measure = last is not None and last.name != "" and name_meaning(last.name).kind != Kind.OTHER
        return self._text[end : end + 3].lstrip(" \"'")[:1] in (":", "=") or (is_measure and self._next_is_value(end))

    def _note_speed(self, unit: str, value: str) -> None:
        name = speed_name(unit) if "/" in unit and value else None
        if name is not None:
            self.result.speeds.setdefault(name, value)

    def _names_last_number(self, word: str) -> bool:
        """Give the number before a word such as `batches` this name, unless it has one."""
        last = self.result.pairs[-1]
        words = last.name.lower().split()
        if words and (name_meaning(last.name).kind < Kind.OTHER or not _LIMITS.isdisjoint(words)):
            return False
        self.result.pairs[-1] = last._replace(name=word)
        return True

    def _modifier(self, text: str) -> None:
        if self._words:
            inner = text[1:-1].lower().split()
            self._note(inner)
            if EVALUATION.isdisjoint(inner) and TRAINING.isdisjoint(inner) and inner[0] not in _BASES:
                self._words[-1] += " " + text
            return
        self._note(text[1:-1].lower().split())

    def _leader(self, end: int) -> None:
        """Dots between a name and its number, as in `step ....... 10`."""
        if self._words and self._next_is_value(end):
            self._separated = True
        else:
            self._drop_words()

    def _other(self, character: str, start: int) -> None:
        if character in ":=":
            self._separated = bool(self._words) or bool(self._waiting)
            self._behind_number = False
        elif character in _KEPT:
            pass
        elif character == "," and self._words and self._text[start - 1] in "'\"" and self._next_is_value(start + 1):
            self._separated = True  # ('loss', 2.5)
        elif character in _OPENING:
            if not self._next_is_value(start + 1):
                self._drop_words()
        elif character in "-–—>~":
            following = self._text[start + 1 : start + 2]
            if self._is_dash_before_figure(start):
                self._separated = True
            elif not self._separated and self._text[start - 1 : start] == " " and not following.isalpha():
                self._drop_words()
        else:
            self._drop_words()
            if character == ",":
                self._waiting = ""

    def _is_dash_before_figure(self, start: int) -> bool:
        """Whether a dash stands between a measure and its number: `dice_loss - 0.61`."""
        if not self._words or self._text[start - 1 : start] != " " or not _DECIMAL_BEHIND.match(self._text, start + 1):
            return False
        return Kind.EPOCH < name_meaning(" ".join(self._words)).kind < Kind.RATE

    def _next_is_value(self, position: int) -> bool:
        following = self._text[position : position + 24].lstrip(" \t[('\"")
        if not following:
            return False
        return following[0].isdigit() or following[0] in ":=-+." or following[:3].lower() in ("nan", "inf")

    def _drop_words(self) -> None:
        if self._words:
            self.result.has_lead |= not self.result.pairs and sum(not word.isupper() for word in self._words) > 1
            if not self._metric and Kind.EPOCH < name_meaning(" ".join(self._words)).kind < Kind.RATE:
                self._metric = " ".join(self._words)
            self._name_last_number()
            self._note([word.lower() for phrase in self._words for word in phrase.split()])
        self._clear()

    def _name_last_number(self) -> None:
        """Give a number in front of the words their name, as in `0.5 avg loss`."""
        name, pairs = " ".join(self._words), self.result.pairs
        if self._behind_number and pairs and not pairs[-1].name and Kind.EPOCH < name_meaning(name).kind < Kind.RATE:
            pairs[-1] = pairs[-1]._replace(name=name)

    def _note(self, words: list[str]) -> None:
        if any(name_meaning(pair.name).kind in (Kind.LOSS, Kind.METRIC) for pair in self.result.pairs if pair.name):
            return
        self.result.is_evaluation |= not EVALUATION.isdisjoint(words)
        self.result.is_training |= not TRAINING.isdisjoint(words)

    def _clear(self) -> None:
        self._words, self._separated, self._behind_number = [], False, False


def _counted(value: str, unit: str) -> tuple[str, str]:
    """A counter's number in full: `1.2k` is 1200, and `1.00e+01` is 10."""
    if unit in _THOUSANDS and "e" not in value.lower():
        return str(round(float(value) * _THOUSANDS[unit])), ""
    if not unit and _FLOATED.match(value):
        number = float(value)
        return (str(int(number)), "") if number.is_integer() else (value, unit)
    return value, unit


def _plain(digits: str) -> str:
    digits = digits.replace("_", "").replace("D", "e").replace("d", "e")
    if "," in digits and digits.lstrip("+-").startswith("0"):
        return digits.replace(",", ".")
    return digits.replace(",", "")
