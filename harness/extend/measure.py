"""Read texts of several lengths in several ways, and keep each result in a file.

extend-HASH/settings.json          what all results depend on
            cells/HASH.json        one way, tuned or not, at one length of one text
            tuned-HASH.safetensors the weights that tuning with a way has changed
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness.extend.subject import Subject
from harness.extend.texts import Texts
from harness.extend.tune import Tuner
from harness.perf.timing import clock
from harness.runs import cost
from harness.runs.files import json_bytes, read_sealed, write_sealed
from harness.runs.record import failure_reason
from harness.settings.protocol import version_of
from harness.training.predict import bits_and_hits
from pezoo.registry import parse

QUADRATIC = 8192  # tokens from which attention takes most of the time, for the time left
Say = Callable[[str, float], None]  # what is done, and the share of all work that is done


class Place(NamedTuple):
    """One result: a way, with or without tuning, at a length of a text."""

    way: str
    tuned: bool
    length: int
    text: int


@dataclass
class Study:
    """The results on a model by place.

    `stable`: ways whose cached keys stay valid when the text grows. `notes`: why a way, tuned or
    not, could not read a length.
    """

    subject: Subject
    texts: Texts
    ways: Sequence[str]
    lengths: tuple[int, ...]
    folder: Path
    tuner: Tuner | None
    device: str
    cells: dict[Place, dict[str, Any]] = field(default_factory=dict)
    stable: dict[str, bool] = field(default_factory=dict)
    notes: dict[tuple[str, bool, int], str] = field(default_factory=dict)

    def run(self, say: Say) -> None:
        """Measure what is not known yet: text by text, tuned ways after all others.

        Errors: SpecError or ValueError for a way that the model does not take.
        """
        self.stable = {way: self.subject.put(way).prefix_stable for way in self.ways}
        missing = [one for one in self._places() if not self._known(one)]
        total = sum(_work(one.length) for one in missing)
        ahead = {one.way for one in missing if one.tuned and not self.weights(one.way).exists()}
        step = 0.0 if self.tuner is None else 3 * _work(self.tuner.settings.length)
        total += step * len(ahead) * (self.tuner.settings.steps if self.tuner else 0)
        done = 0.0
        for one in missing:
            if self.tuner and one.tuned and one.way in ahead:
                ahead.remove(one.way)
                for number in self.tuner.tune(one.way, self.weights(one.way)):
                    done += step
                    say(f"tuning {one.way}, step {number}", done / total)
            words = self._measure(one)
            done += _work(one.length)
            say(f"{self._name(one)}: {words}", done / total)

    def _places(self) -> list[Place]:
        texts = range(len(self.texts.ends))
        found = [Place(w, False, n, t) for t in texts for n in self.lengths for w in self.ways]
        if self.tuner is not None:
            found += [Place(w, True, n, t) for w in self.ways for t in texts for n in self.lengths]
        return found

    def _name(self, one: Place) -> str:
        count = len(self.texts.ends)
        text = f", text {one.text + 1} of {count}" * (count > 1)
        return f"{one.way}{', tuned' * one.tuned}, {one.length:,} tokens{text}"

    def _known(self, one: Place) -> bool:
        found = read_sealed(self._path(one))
        if found is not None:
            self.cells[one] = found["result"]
        return found is not None

    def _key(self, way: str, tuned: bool) -> dict[str, Any]:
        tuning = asdict(self.tuner.settings) if tuned and self.tuner else None
        return {"way": way, "version": version_of(parse(way)), "tuning": tuning}

    def _path(self, one: Place) -> Path:
        key = self._key(one.way, one.tuned) | {"length": one.length, "text": one.text}
        return self.folder / "cells" / f"{digest(key)}.json"

    def weights(self, way: str) -> Path:
        """Return the file of what tuning with a way has changed."""
        return self.folder / f"tuned-{digest(self._key(way, True))}.safetensors"

    def _measure(self, one: Place) -> str:
        """Measure and write one result; return it in words, or why there is none."""
        where = one.way, one.tuned, one.length
        if where in self.notes:
            return self.notes[where]
        try:
            if one.tuned and self.tuner:
                self.tuner.load(one.way, self.weights(one.way))
            else:
                self.subject.put(one.way)
            found = read(self.subject, self.texts, one, self.device)
        except Exception as error:
            reason = failure_reason(error)
            if not reason.startswith(("out of memory", "cannot represent")):
                raise
            self.notes[where] = reason
            return reason
        path = self._path(one)
        path.parent.mkdir(parents=True, exist_ok=True)
        key = self._key(one.way, one.tuned) | {"length": one.length, "text": one.text}
        write_sealed(path, key | {"result": found})
        self.cells[one] = found
        return said(found)


def said(found: dict[str, Any]) -> str:
    """Return a result in words."""
    bits, hits = found["bits"], found["hits"]
    words = "not finite" if bits is None else f"{bits:.3f} bits per byte"
    passkeys = f", {sum(hits)} of {len(hits)} passkeys" * bool(hits)
    return f"{words}{passkeys}, {found['seconds']:.3g} s"


@torch.no_grad()
def read(subject: Subject, texts: Texts, one: Place, device: str) -> dict[str, Any]:
    """Read a text of some length, and return its result.

    `bits` are per byte of the scored tokens, `tokens` their bits per token, None where the logits
    are not finite; `hits` tells for each passkey whether it was retrieved.
    """
    passage = texts.passage(one.text, one.length)
    cost.forget_peak_memory(device)
    ids = passage.ids[None].to(device)
    seconds, logits = clock(lambda: subject.logits(ids, passage.tail + 1), device)
    found = bits_and_hits(logits[:, :-1], ids[:, -passage.tail :])[0].double().cpu()
    bits = found[: passage.scored, 0].sum()
    finite = bool(bits.isfinite())
    return {
        "bits": float(bits) / passage.size if finite else None,
        "tokens": float(bits) / passage.scored if finite else None,
        "hits": [bool(found[list(places), 1].all()) for places in passage.answers],
        "seconds": seconds,
        "peak_mb": cost.peak_memory_mb(device),
    }


def digest(settings: dict[str, Any]) -> str:
    """Return a hash of settings, for the name of a file."""
    return hashlib.sha256(json_bytes(settings)).hexdigest()[:12]


def _work(length: int) -> float:
    return length * (1 + length / QUADRATIC)
