"""The results of `pezoo extend` as a table, a picture, a page and advice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, log2
from typing import Any

from jinja2 import Environment, PackageLoader
from tabulate import tabulate

from harness.extend.measure import Place, Study
from harness.extend.subject import OWN
from harness.extend.texts import DEPTHS
from harness.extend.ways import paste
from leaderboard.render.curves import curves
from leaderboard.render.styles import distinct
from leaderboard.render.text import as_csv
from leaderboard.stats.intervals import Stat, over_seeds, student
from leaderboard.stats.rows import BITS, Point, Points

LOSS = 0.02  # bits per byte that a way may need more than the model's own window, to reach a length
HIGH, FLOOR = 12, 1e-3  # lines of the picture; the fewest bits in it
MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Row:
    """One way, tuned or not: the results of all texts by length."""

    study: Study
    way: str
    tuned: bool

    @property
    def label(self) -> str:
        name = f"{self.way} (own rotation)" if self.way == OWN else self.way
        return f"{name}, tuned" if self.tuned else name

    def values(self, length: int, key: str) -> list[Any]:
        """Return a value of each text, in order; [] unless all texts are measured."""
        texts = range(len(self.study.texts.ends))
        found = [self.study.cells.get(Place(self.way, self.tuned, length, t)) for t in texts]
        return [] if None in found else [cell[key] for cell in found if cell]

    def bits(self, length: int) -> Stat | None:
        """Return the mean bits per byte and its interval over the texts."""
        values = self.values(length, "bits")
        return over_seeds(values, top=inf) if values and None not in values else None

    def gain(self, length: int) -> Stat | None:
        """Return how many bits fewer they are than with the model's own last L tokens."""
        window = Row(self.study, OWN, False).values(self.study.subject.trained, "bits")
        values = self.values(length, "bits")
        if not values or not window or None in [*values, *window]:
            return None
        return _mean([own - one for own, one in zip(window, values, strict=True)])

    def loss_below(self) -> float | None:
        """Return how many bits more it needs than the own rotation, on texts of up to L tokens."""
        own, found = Row(self.study, OWN, False), []
        for length in self.study.lengths:
            pair = self.bits(length), own.bits(length)
            if length <= self.study.subject.trained and pair[0] and pair[1]:
                found.append(pair[0].mean - pair[1].mean)
        return sum(found) / len(found) if found else None

    def hits(self, length: int) -> list[int]:
        """Return how many texts' passkeys were retrieved at each depth."""
        return [sum(column) for column in zip(*self.values(length, "hits"), strict=True)]

    def reach(self) -> int:
        """Return the longest text up to which none costs more than LOSS against the own window."""
        found = 0
        for length in self.study.lengths:
            gain = self.gain(length)
            if length >= self.study.subject.trained:
                if gain is None or gain.mean < -LOSS:
                    break
                found = length
        return found

    def data(self) -> dict[str, Any]:
        lengths = {
            str(n): {key: self.values(n, key) for key in ("bits", "tokens", "hits")}
            | {"seconds": self.values(n, "seconds"), "peak_mb": self.values(n, "peak_mb")}
            for n in self.study.lengths
        }
        stable = self.study.stable[self.way]
        return {"way": self.way, "tuned": self.tuned, "cache": stable, "lengths": lengths}


def _mean(values: Sequence[float]) -> Stat:
    if len(values) < 2:
        return over_seeds(values)
    low, high = student(values, (-inf, inf))
    return Stat(sum(values) / len(values), low, high, len(values), "t")


def rows(study: Study) -> list[Row]:
    """Return a row for each way, untuned ones first."""
    both = (False, True) if study.tuning else (False,)
    return [Row(study, way, tuned) for tuned in both for way in study.ways]


def head(study: Study) -> str:
    """Say what the numbers are."""
    n, last = len(study.texts.ends), study.texts.last
    many = f"{n} texts, ± 95 %" if n > 1 else "one text"
    return (
        f"{study.subject.name}: {BITS} of the same last {last} tokens by tokens read, {many}\n"
        f"L = {study.subject.trained:,} tokens; gain: bits saved against the own last L tokens"
    )


def table(study: Study, form: str) -> str:
    """Return the table of all ways, "simple" or "github"."""
    last = study.lengths[-1]
    heads = ["way", *(f"{n:,}" for n in study.lengths), f"gain at {last:,}", "cost up to L"]
    heads += [*(f"passkeys {n:,}" for n in _passkeys(study)), "tokens/s", "peak MB", "cache"]
    lines = [[row.label, *_cells(row, last)] for row in rows(study)]
    align = ["left", *["right"] * (len(heads) - 1)]
    return tabulate(lines, heads, tablefmt=form, disable_numparse=True, colalign=align)


def _passkeys(study: Study) -> list[int]:
    return [n for n in study.lengths if n >= study.subject.trained and study.texts.depths]


def _cells(row: Row, last: int) -> list[str]:
    study, below, gain = row.study, row.loss_below(), row.gain(last)
    cells = [_stat(row.bits(n)) if row.bits(n) else _why(row, n) for n in study.lengths]
    cells += ["-" if gain is None else _stat(gain, "+"), "-" if below is None else f"{below:+.3f}"]
    for n in _passkeys(study):
        hits = row.hits(n)
        cells.append(f"{sum(hits)}/{len(hits) * len(study.texts.ends)}" if hits else "-")
    taken, peaks = row.values(last, "seconds"), row.values(last, "peak_mb")
    cells.append(f"{last * len(taken) / sum(taken):,.0f}" if taken else "-")
    cells.append(f"{max(peaks):,.0f}" if peaks else "-")
    return [*cells, "valid" if study.stable[row.way] else "recomputed"]


def _why(row: Row, length: int) -> str:
    note = row.study.notes.get((row.way, row.tuned, length))
    return note.partition(":")[0] if note else "-"


def _stat(stat: Stat | None, sign: str = "") -> str:
    if stat is None:
        return "-"
    half = "" if stat.high is None else f" ±{stat.high - stat.mean:.3f}"
    return f"{stat.mean:{sign}.3f}{half}"


def depths(study: Study, form: str) -> str:
    """Return the table of passkeys that were retrieved, by depth and length."""
    heads = ["way", "tokens", *(f"{depth:.0%}" for depth in DEPTHS)]
    lines = [
        [row.label, f"{n:,}", *map(str, row.hits(n))]
        for row in rows(study)
        for n in study.lengths
        if row.hits(n)
    ]
    align = ["left", *["right"] * (len(heads) - 1)]
    return (lines and tabulate(lines, heads, form, disable_numparse=True, colalign=align)) or ""


def picture(study: Study) -> str:
    """Return bits against length as text, logarithmic: a column per length, a letter per way."""
    drawn = [*zip(MARKS, rows(study), strict=False)]
    every = ((mark, n, row.bits(n)) for mark, row in drawn for n in study.lengths)
    logs = {(mark, n): log2(max(stat.mean, FLOOR)) for mark, n, stat in every if stat}
    if not logs:
        return ""
    low, wide = min(logs.values()), len(drawn) + 3
    step = (max(logs.values()) - low) / (HIGH - 1) or 1.0
    places = {key: round((value - low) / step) for key, value in logs.items()}
    lines = []
    for at in reversed(range(max(places.values()) + 1)):
        columns = ("".join(m for m, _ in drawn if places.get((m, n)) == at) for n in study.lengths)
        lines.append(f"{2 ** (low + at * step):7.3f} |" + "".join(f"{x:^{wide}}" for x in columns))
    lines.append(" " * 9 + "".join(f"{n:^{wide},}" for n in study.lengths))
    return "\n".join([*lines, *(f"{mark} {row.label}" for mark, row in drawn)])


def svg(study: Study, inline: bool = False) -> str:
    """Return the picture of bits against length."""
    found = []
    for row in rows(study):
        stats = [(n, row.bits(n)) for n in study.lengths]
        points = tuple(
            Point(length=n, seen=n <= study.subject.trained, main=s) for n, s in stats if s
        )
        found.append(Points(row.label, points, BITS, study.subject.trained))
    look = {row.label: distinct(at) for at, row in enumerate(found)}
    title = f"{study.subject.name}, trained on {study.subject.trained:,} tokens"
    return curves(title, found, look, "tokens read", inline=inline)


def best(study: Study, tuned: bool) -> Row | None:
    """Return the way that reads furthest beyond L; of equals, the one that retrieves most passkeys
    there, then the one with fewest bits. None if none reads further."""

    def order(row: Row) -> tuple[int, int, float]:
        reach = row.reach()
        stat = row.bits(reach)
        beyond = [n for n in study.lengths if study.subject.trained < n <= reach]
        return reach, sum(sum(row.hits(n)) for n in beyond), -stat.mean if stat else -inf

    found = max((row for row in rows(study) if row.tuned == tuned), key=order)
    return found if found.reach() > study.subject.trained else None


def advice(study: Study) -> list[str]:
    """Say plainly what to take, without and with tuning, and what to paste."""
    lines = []
    for tuned in (False, True) if study.tuning else (False,):
        when = f"with {study.tuning.steps} steps" if study.tuning and tuned else "without tuning"
        row = best(study, tuned)
        if row is None:
            cut = f"its own last {study.subject.trained:,} tokens: cut the text"
            lines.append(f"{when}, no way is within {LOSS} bits per byte of {cut}")
            continue
        n = row.reach()
        lines.append(f"{when}, take {row.way} up to {n:,} tokens: {_reason(row, n)}")
        told = paste(row.way, study.subject, n).items()
        lines += [f"  {where}: {what}" for where, what in told]
    return lines


def _reason(row: Row, length: int) -> str:
    gain, hits = row.gain(length), row.hits(length)
    assert gain is not None
    words = f"{abs(gain.mean):.3f} bits per byte {'fewer' if gain.mean >= 0 else 'more'}"
    words += f" than with the model's own last {row.study.subject.trained:,} tokens"
    if gain.low is not None:
        words += f" (gain 95 % within {gain.low:+.3f} to {gain.high:+.3f})"
    total = len(hits) * len(row.study.texts.ends)
    return words + (f", {sum(hits)} of {total} passkeys" if hits else "")


def data(study: Study, settings: dict[str, Any]) -> dict[str, Any]:
    """Return all results as plain data."""
    told = {w: paste(w, study.subject, study.lengths[-1]) for w in study.ways}
    own = {"settings": settings, "rows": [row.data() for row in rows(study)]}
    return own | {"advice": advice(study), "paste": told}


def csv(study: Study) -> str:
    """Return a line for each way, length and text."""
    keys = "bits", "tokens", "hits", "seconds", "peak_mb"
    lines: Iterable[list[object]] = (
        [*place, *(sum(cell[k]) if k == "hits" else cell[k] for k in keys)]
        for place, cell in sorted(study.cells.items())
    )
    return as_csv(["way", "tuned", "length", "text", *keys], lines)


def page(study: Study, settings: dict[str, Any]) -> str:
    """Return one HTML file that loads nothing else."""
    environment = Environment(loader=PackageLoader("harness", "extend"), autoescape=True)
    return environment.get_template("page.html").render(
        study=study, settings=settings, advice=advice(study), picture=svg(study),
        tables=[_split(table(study, "tsv")), _split(depths(study, "tsv"))],
    )  # fmt: skip


def _split(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("\t")] for line in text.splitlines()]
