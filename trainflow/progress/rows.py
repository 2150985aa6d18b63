"""The step and the figures in the names and numbers of a line; pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainflow.progress.pairs import Pair, Text
from trainflow.progress.vocabulary import PLURALS, TRAINING, Kind, Meaning, name_meaning, word_set
from trainflow.protocol.metric_aliases import MAX_METRICS, whole

TRAINING_LOSS, METRIC, RATE, EVALUATION, NOTHING = 0, 2, 3, 4, 5
"""Preference of a line, the best first: a loss of the training, another metric, a learning rate, an evaluation's, and
no figure whose name is known."""

_IGNORED = word_set(
    """
    cuda gpu rank pid ip node worker port device line xla cpu neuron eta v_num local_rank world_size version thread
    chain process host date time_elapsed
    """
)
_TIME_UNITS = word_set("s sec secs ms us µs ns min mins h m hours seconds it/s s/it")
_MARKS = {"(": ")", "<": ">", "#": " ", "@": ":"}
"""Signs around a number without a name that may count."""

_LETTERS = word_set("t k j")
COUNTING = TRAINING | word_set(
    """
    step steps iter iters iteration iterations iterate itr it epoch epochs update updates timestep timesteps episode
    episodes generation gen tick sweep kimg current global total num n at
    """
)
"""Words of a counter that may lead a line without a known figure."""

_UNIT_BEHIND = re.compile(r" [smhkKMGT%]")

_DECIMAL = re.compile(r"[.eEni]")


@dataclass(frozen=True)
class Row:
    """A line that names a step and a figure."""

    shape: str
    """Names of the counter and of the figure: lines of one shape have one meaning."""
    preference: int
    batch: int
    total: int | None
    length: int | None
    """Last step of the training, if the line says it."""
    epoch: int | None
    restarts: bool
    """The counter is one of batches, which begins anew with each epoch."""
    is_weak: bool
    """The counter lacks a name, and could be the number of a process."""
    is_certain: bool
    """One such line is enough: a step, an iteration or a batch with the training's loss."""
    figures: dict[str, str]
    """Figures under the names that the program prints; the training's loss is called `loss`."""


@dataclass(frozen=True)
class Counter:
    """The counters of a line."""

    name: str
    kind: Kind
    batch: int
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    used: frozenset[int] = frozenset()
    """Positions of the pairs that count."""
    is_weak: bool = False
    is_evaluation: bool = False


def line_row(text: Text, heading_epoch: int | None = None, *, is_table: bool = False) -> Row | None:
    """The step and the figures of a line; None for a line without one of them.

    Args:
        text: Names and numbers of the line.
        heading_epoch: Epoch of the heading above the line.
        is_table: The line is a row of a table whose first column counts, so that it needs no known figure.
    """
    counter = line_counter(text.pairs)
    if counter is None or counter.is_evaluation:
        return None
    measures = [(i, name_meaning(pair.name)) for i, pair in enumerate(text.pairs) if _is_measure(pair)]
    if not text.is_training and (
        text.is_evaluation or _names_evaluation(text.pairs[: measures[0][0] if measures else 0])
    ):
        return None
    chosen = _chosen(text.pairs, measures, counter)
    if chosen is None and not (is_table or _shows_progress(text, counter)):
        return None
    index, preference = chosen or (None, NOTHING)
    epoch = counter.epoch
    if epoch is None and heading_epoch is not None and counter.kind in (Kind.STEP, Kind.ITERATION, Kind.BATCH):
        epoch = heading_epoch
    name = "" if index is None else text.pairs[index].name
    return Row(
        shape=f"{counter.name.lower()}|{name.lower()}"[:120],
        preference=preference,
        batch=counter.batch,
        total=counter.total,
        length=_length(counter, epoch),
        epoch=epoch if counter.kind != Kind.EPOCH else None,
        restarts=counter.kind == Kind.BATCH,
        is_weak=counter.is_weak,
        is_certain=index is not None and preference == TRAINING_LOSS and _is_certain(counter, text.pairs, index),
        figures={
            **text.speeds,
            **_figures(text.pairs, counter, index if preference == TRAINING_LOSS else None, epoch),
        },
    )


def _length(counter: Counter, epoch: int | None) -> int | None:
    """Last step of the training: `iter 40/300`, `Epoch [1/10], step [40/300]`.

    The total of a bar, or of batches without an epoch, may be that of one epoch.
    """
    if counter.total is None:
        return None
    if epoch is None:
        return counter.total if counter.kind in (Kind.GLOBAL_STEP, Kind.STEP, Kind.ITERATION) else None
    return counter.total * counter.epochs if counter.epochs else None


def _is_certain(counter: Counter, pairs: Sequence[Pair], loss: int) -> bool:
    """Whether a counter and a loss are a training step's, and neither settings nor an evaluation's.

    `steps: 1000, loss: 2` may be settings; `step 10 loss 2.31` can hardly be. A program that prints both losses in one
    line may print its training's own lines as well. An object within a sentence belongs to the sentence.
    """
    is_plural = counter.kind > Kind.GLOBAL_STEP and not PLURALS.isdisjoint(re.split(r"[\s_]", counter.name.lower()))
    counts = counter.kind < Kind.EPISODE and not counter.is_weak and (not is_plural or counter.total is not None)
    evaluates = any(name_meaning(pair.name).is_evaluation for pair in pairs if pair.name)
    return counts and not evaluates and bool(_DECIMAL.search(pairs[loss].value)) and pairs[-1].behind != "} "


def line_counter(pairs: Sequence[Pair]) -> Counter | None:
    """The counter that is the step, with the epoch; None for a line without one."""
    named = [(i, name_meaning(pair.name)) for i, pair in enumerate(pairs) if pair.name]
    counters = [(i, meaning) for i, meaning in named if meaning.is_counter and _whole(pairs[i]) is not None]
    epoch_at = next((i for i, meaning in counters if meaning.kind == Kind.EPOCH), None)
    steps = [(meaning.kind, i, meaning) for i, meaning in counters if meaning.kind != Kind.EPOCH]
    used = frozenset(i for i, _ in counters)
    epoch = None if epoch_at is None else _whole(pairs[epoch_at])
    epochs = None if epoch_at is None else int(pairs[epoch_at].total or 0) or None
    if steps:
        kind, at, meaning = min(steps, key=lambda each: each[:2])
        found = _counter(pairs, at, kind, epoch, used, is_evaluation=meaning.is_evaluation)
        return replace(found, epochs=epochs)
    bare = _bare_counter(pairs, epoch, used)
    if bare is not None:
        return replace(bare, epochs=epochs)
    if epoch_at is None:
        return None
    evaluates = name_meaning(pairs[epoch_at].name).is_evaluation
    return Counter(pairs[epoch_at].name, Kind.EPOCH, epoch or 0, None, epoch, used=used, is_evaluation=evaluates)


def _counter(
    pairs: Sequence[Pair], at: int, kind: Kind, epoch: int | None, used: frozenset[int], *, is_evaluation: bool
) -> Counter:
    total = int(pairs[at].total or 0) or None
    return Counter(pairs[at].name, kind, _whole(pairs[at]) or 0, total, epoch, used=used, is_evaluation=is_evaluation)


def _bare_counter(pairs: Sequence[Pair], epoch: int | None, used: frozenset[int]) -> Counter | None:
    """A counter without a name of its own: `10/100`, `[1, 2000]`, `[10]` or a number at the beginning."""
    fractions = [i for i, pair in enumerate(pairs) if i not in used and pair.total and _whole(pair) is not None]
    if fractions:
        return _fraction(pairs, fractions, epoch, used)
    for i, pair in enumerate(pairs[:3]):
        number = _whole(pair)
        if number is None or (pair.name and pair.place != "[" and pair.name.lower() not in _LETTERS):
            if pair.name and _is_measure(pair):
                return None
            continue
        following = pairs[i + 1] if i + 1 < len(pairs) else None
        if pair.name == "" and pair.place in ("[", "(") and pair.behind[:1] == "," and following and not following.name:
            second = _whole(following)
            if second is not None:
                return Counter(
                    "[,]", Kind.BATCH, second, None, number if epoch is None else epoch, used=used | {i, i + 1}
                )
        if pair.name == "" and pair.place == "[" and (pair.behind in ("] ", "]\t", "]", " |")):
            kind = Kind.STEP if epoch is None else Kind.BATCH
            return Counter("[]", kind, number, None, epoch, used=used | {i})
        if pair.name == "" and _MARKS.get(pair.place) == pair.behind[:1] and not pair.unit:
            return Counter(pair.place, Kind.STEP, number, None, epoch, used=used | {i}, is_weak=True)
        if i < 2 and epoch is None and pair.name.lower() in _LETTERS and not pair.unit:
            return Counter(pair.name, Kind.EPISODE, number, used=used | {i}, is_weak=True)
        if (
            pair.place == "^"
            and not pair.name
            and not pair.unit
            and (pair.behind[:1] in ("\t", "|") or pair.behind in (": ", ":\t", ":", "  "))
        ):
            return Counter("^", Kind.STEP, number, None, epoch, used=used | {i}, is_weak="\t" not in pair.behind)
    return None


def _fraction(pairs: Sequence[Pair], fractions: list[int], epoch: int | None, used: frozenset[int]) -> Counter:
    outside = [i for i in fractions if pairs[i].place != "(" or i == 0 or pairs[i - 1].unit != "%"]
    at, found = (outside or fractions)[0], set(used)
    if epoch is None and len(fractions) > 1 and pairs[at].place == "[" and pairs[fractions[1]].place == "[":
        epoch, at = _whole(pairs[at]), fractions[1]
        found.add(fractions[0])
    elif epoch is None and at > 0 and _may_be_epoch(pairs[at - 1]) and pairs[at].place == "[":
        epoch = _whole(pairs[at - 1])
        found.add(at - 1)
    total = int(pairs[at].total or 0) or None
    name = "/" if epoch is not None else f"/{total}"
    return Counter(
        name,
        Kind.BATCH,
        _whole(pairs[at]) or 0,
        total,
        epoch,
        used=frozenset(found | {at}),
        is_evaluation=name_meaning(pairs[at].name).is_evaluation if pairs[at].name else False,
    )


def _may_be_epoch(pair: Pair) -> bool:
    return _whole(pair) is not None and (
        pair.name.lower() in ("train", "training") or (not pair.name and pair.place == "[")
    )


def _whole(pair: Pair) -> int | None:
    """The number of a counter: without a unit, and written without an exponent."""
    return whole(pair.value) if not pair.unit and "e" not in pair.value.lower() else None


def is_duration(pair: Pair) -> bool:
    """Whether the unit of a number is that of a time or a speed."""
    return pair.unit.lower() in _TIME_UNITS


def _is_measure(pair: Pair) -> bool:
    if not pair.name or pair.total or is_duration(pair):
        return False
    kind = name_meaning(pair.name).kind
    if kind == Kind.METRIC:
        return bool(_DECIMAL.search(pair.value)) or pair.unit == "%" or "re" in pair.name.lower()
    return kind in (Kind.LOSS, Kind.RATE)


def _chosen(pairs: Sequence[Pair], measures: Sequence[tuple[int, Meaning]], counter: Counter) -> tuple[int, int] | None:
    """The figure that makes the line a step's, with the preference of the line."""
    losses = [(i, meaning) for i, meaning in measures if meaning.kind == Kind.LOSS and not meaning.is_evaluation]
    if losses:
        return min(losses, key=lambda each: (_loss_order(pairs[each[0]].name), each[0]))[0], TRAINING_LOSS
    for kind, preference in ((Kind.METRIC, METRIC), (Kind.RATE, RATE)):
        if kind == Kind.RATE and counter.kind in (Kind.BATCH, Kind.EPISODE):
            continue  # "batch: 8, lr: 0.1" are settings
        found = next((i for i, meaning in measures if meaning.kind == kind and not meaning.is_evaluation), None)
        if found is not None:
            return found, preference
    if measures and (counter.kind >= Kind.EPISODE or counter.name in ("[]", "^")):
        return measures[0][0], EVALUATION
    if (
        counter.epoch is not None
        and counter.kind in (Kind.STEP, Kind.ITERATION, Kind.BATCH)
        and counter.name[:1].isalpha()
    ):
        named = (i for i, pair in enumerate(pairs) if _is_plain_figure(pair) and i not in counter.used)
        found = next(named, None)
        return None if found is None else (found, RATE)
    return None


def _shows_progress(text: Text, counter: Counter) -> bool:
    """Whether a counter leads a line without a known figure, and another named figure follows.

    A speed, a time or a bar is not enough: programs print these for batches, and losses for epochs, whose numbers are
    lower and would count as repeated.
    """
    pairs = text.pairs
    if text.has_lead or counter.is_weak or not counter.name[:1].isalpha():
        return False
    at = next(i for i, pair in enumerate(pairs) if pair.name == counter.name)
    before = [pair for pair in pairs[:at] if pair.name and not _may_precede(pair)]
    words, behind = _words(counter.name), pairs[at + 1 :]
    if words & {"total", "num"} or counter.epoch is not None:
        words -= {"frames"}
    if text.is_training or any(not TRAINING.isdisjoint(_words(pair.name)) for pair in behind):
        words -= {"batch"}
    is_plural = not PLURALS.isdisjoint(words) and counter.total is None
    return COUNTING.issuperset(words) and not before and not is_plural and any(map(_is_pure_figure, behind))


def _is_pure_figure(pair: Pair) -> bool:
    """Whether a figure lacks a unit; measured times and sizes have one."""
    return _is_plain_figure(pair) and 0 < len(pair.name.split()) <= 3 and _UNIT_BEHIND.match(pair.behind) is None


def _may_precede(pair: Pair) -> bool:
    return name_meaning(pair.name).is_counter or pair.name.lower() in _IGNORED


def _words(name: str) -> set[str]:
    return set(re.split(r"[\s_/-]+", name.lower()))


def _names_evaluation(pairs: Sequence[Pair]) -> bool:
    """Whether a percentage or a count before the figures is an evaluation's, as in `Evaluating:  10%`."""
    return any(name_meaning(pair.name).is_evaluation for pair in pairs if pair.unit == "%" or _whole(pair) is not None)


def _loss_order(name: str) -> int:
    words = name.lower().replace("/", " ").replace("_", " ").split()
    if words == ["loss"]:
        return 0
    if "train" in words or "training" in words:
        return 1 if len(words) <= 2 else 2 if "total" in words else 3
    return 4 if "total" in words else 5 if {"avg", "mean", "average"} & set(words) else 6


def _is_plain_figure(pair: Pair) -> bool:
    is_time = "time" in pair.name.lower() or pair.name.lower() in ("data", "sec")
    return bool(pair.name) and "." in pair.value and not pair.unit and not is_time


def _figures(pairs: Sequence[Pair], counter: Counter, loss: int | None, epoch: int | None) -> dict[str, str]:
    figures = {} if loss is None else {"loss": pairs[loss].value}
    if epoch is not None:
        figures["epoch"] = str(epoch)
    first = min([*counter.used, *(i for i, pair in enumerate(pairs) if _is_measure(pair))])
    for i, pair in enumerate(pairs):
        if i < first or i in counter.used or i == loss or pair.total or not pair.name or len(figures) == MAX_METRICS:
            continue
        if pair.name.lower() not in _IGNORED and not name_meaning(pair.name).is_counter:
            figures.setdefault(pair.name, pair.value)
    return figures
