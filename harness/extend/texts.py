"""The texts that every way reads: the same last tokens at every length, with passkeys before them.

A text of n tokens is

    context with a passkey at each depth | the scored tokens | a question for each passkey

The scored tokens are the same at every length. A passkey is a sentence, "The pass key of Oslo is
48213."; its question repeats the sentence up to the number. Each number is read as given, so that
one pass over the text scores them all as greedy decoding would.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from harness.data.seeds import generator
from harness.extend.subject import Subject
from harness.tasks.corpus import Corpus

DEPTHS = {0.1: "Oslo", 0.3: "Lima", 0.5: "Cairo", 0.7: "Delhi", 0.9: "Quito"}
ROOM = 4  # passkeys and questions take at most 1/ROOM of the shortest text


@dataclass(frozen=True)
class Passage:
    """One text of n tokens: ids (n,), of which `tail` follow the context.

    The first `scored` tokens of the tail count for bits, and are `size` bytes; `answers` are the
    places in the tail of each passkey's number.
    """

    ids: Tensor
    tail: int
    scored: int
    size: int
    answers: tuple[range, ...]


class Texts:
    """The texts of a corpus in a model's tokens; `lengths` ascend.

    Errors: ValueError for a text that is too short.
    """

    def __init__(
        self, subject: Subject, corpus: Corpus, lengths: tuple[int, ...], count: int, last: int
    ) -> None:
        self.subject, self.last = subject, last
        self.held = subject.encode(b"\n".join(corpus.test).decode(errors="replace"))
        self.corpus, most, total = corpus, lengths[-1], len(self.held)
        if total < most + (count - 1) * last:
            raise ValueError(
                f"the text has {total:,} tokens to test on, fewer than the {most:,} of the "
                "longest text: take a larger one (--text FOLDER), or a smaller --to"
            )
        step = (total - most) // max(1, count - 1)
        self.ends = [total - step * at for at in range(count)]
        asked = sum(len(one) for pair in self.passkeys(0) for one in pair)
        self.depths = tuple(DEPTHS) if ROOM * asked <= lengths[0] - last else ()

    def passkeys(self, text: int) -> list[tuple[list[int], list[int], list[int]]]:
        """Return the tokens of each passkey: its sentence, its question, its number."""
        encode, found = self.subject.encode, []
        for depth, place in DEPTHS.items():
            draws = generator("passkey", text, depth)
            number = encode(f" {int(torch.randint(10_000, 100_000, (1,), generator=draws))}")
            asks = encode(f"\nThe pass key of {place} is")
            found.append((asks + number + encode(".\n"), asks, number))
        return found

    def passage(self, text: int, length: int) -> Passage:
        """Return a text of `length` tokens."""
        end = self.ends[text]
        tail, answers, hidden = self.held[end - self.last : end], [], []
        size = self.subject.size(tail)
        for sentence, asks, number in self.passkeys(text) if self.depths else ():
            hidden.append(sentence)
            tail = tail + asks
            answers.append(range(len(tail), len(tail) + len(number)))
            tail = tail + number
        room = length - len(tail) - sum(map(len, hidden))
        context = self.held[end - self.last - room : end - self.last]
        for depth, sentence in reversed([*zip(self.depths, hidden, strict=True)]):
            at = round(depth * room)
            context[at:at] = sentence
        ids = torch.tensor(context + tail)
        return Passage(ids, len(tail), self.last, size, tuple(answers))

    def training(self, length: int) -> Tensor:
        """Return all tokens to tune on, (N,). Errors: ValueError for fewer than `length`."""
        ids = torch.tensor(self.subject.encode(self.corpus.train.decode(errors="replace")))
        if len(ids) <= length:
            raise ValueError(
                f"the text has {len(ids):,} tokens to tune on, no more than one of {length:,}: "
                "take a larger one (--text FOLDER), or a smaller --to"
            )
        return ids
