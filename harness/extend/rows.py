"""The results of a study by way, and the way to take."""

from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import Any

from harness.extend.measure import Place, Study
from harness.extend.subject import OWN
from harness.extend.ways import paste
from leaderboard.stats.intervals import Stat, over_seeds, student

LOSS = 0.02  # bits per byte that a way may need more than the model's own window, to reach a length


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
        saved = [own - one for own, one in zip(window, values, strict=True)]
        ends = student(saved, (-inf, inf)) if len(saved) > 1 else (None, None)
        return Stat(fmean(saved), *ends, len(saved), "t")

    def cost(self) -> float | None:
        """Return how many bits more it needs than the own rotation, on texts of up to L tokens."""
        own, fit = Row(self.study, OWN, False), self.study.lengths[:2]
        pairs = [(one, other) for n in fit if (one := self.bits(n)) and (other := own.bits(n))]
        return sum(one.mean - other.mean for one, other in pairs) / len(pairs) if pairs else None

    def hits(self, length: int) -> list[int]:
        """Return how many texts' passkeys were retrieved at each depth."""
        return [sum(column) for column in zip(*self.values(length, "hits"), strict=True)]

    def reach(self) -> int:
        """Return the longest text up to which none costs more than LOSS against the own window."""
        found = 0
        for length in self.study.lengths[1:]:
            gain = self.gain(length)
            if gain is None or gain.mean < -LOSS:
                break
            found = length
        return found


def rows(study: Study) -> list[Row]:
    """Return a row for each way, untuned ones first."""
    return [Row(study, way, tuned) for tuned in _kinds(study) for way in study.ways]


def _kinds(study: Study) -> tuple[bool, ...]:
    return (False, True) if study.tuner else (False,)


def best(study: Study, tuned: bool) -> Row | None:
    """Return the way that reads furthest beyond L; of equals, the one that retrieves most passkeys
    there, then the one with fewest bits. None if none reads further."""

    def order(row: Row) -> tuple[int, int, float]:
        reach = row.reach()
        stat, beyond = row.bits(reach), [n for n in study.lengths[2:] if n <= reach]
        return reach, sum(sum(row.hits(n)) for n in beyond), -stat.mean if stat else -inf

    found = max((row for row in rows(study) if row.tuned == tuned), key=order)
    return found if found.reach() > study.subject.trained else None


def advice(study: Study) -> list[str]:
    """Say plainly what to take, without and with tuning, and what to paste."""
    lines, trained = [], f"{study.subject.trained:,}"
    for tuned in _kinds(study):
        steps = study.tuner.settings.steps if study.tuner else 0
        when = f"with {steps} step{'s' * (steps > 1)}" if tuned else "without tuning"
        if row := best(study, tuned):
            n = row.reach()
            lines.append(f"{when}, take {row.way} up to {n:,} tokens: {_reason(row, n)}")
            told = {} if row.way == OWN else paste(row.way, study.subject, n)
            if tuned:
                told["weights"] = f"{study.weights(row.way)}, for load_state_dict(strict=False)"
            lines += [f"  {where}: {what}" for where, what in told.items()]
        else:
            cut = f"its own last {trained} tokens: cut the text"
            lines.append(f"{when}, no way is within {LOSS} bits per byte of {cut}")
    return lines


def _reason(row: Row, length: int) -> str:
    gain, hits = row.gain(length), row.hits(length)
    assert gain is not None
    words = f"{abs(gain.mean):.3f} bits per byte {'fewer' if gain.mean >= 0 else 'more'}"
    words += f" than with the model's own last {row.study.subject.trained:,} tokens"
    if gain.low is not None and gain.high is not None:
        words += f" (gain 95 % within {gain.low:+.3f} to {gain.high:+.3f})"
        words += ", no more than cutting the text gives" * (gain.low <= 0 <= gain.high)
    total = len(hits) * len(row.study.texts.ends)
    return words + (f", {sum(hits)} of {total} passkeys" if hits else "")
