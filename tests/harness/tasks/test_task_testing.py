"""check_task finds the fault of a broken task."""

import pytest
import torch

from harness.tasks.base import Batch, Vocab
from harness.tasks.digits import same
from harness.tasks.dyn_str_cpy import DynStrCpy
from harness.tasks.reverse import Reverse
from harness.tasks.testing import check_task
from harness.theory.representation import Computation, Step


def resampled(change):
    """Attributes of a task whose `sample` changes the batch of Reverse."""

    def sample(self, generator, batch, length):
        return change(Reverse.sample(self, generator, batch, length), length)

    return {"sample": sample}


def seeded(seed):
    """Attributes of a task whose `sample` takes its generator from `seed(generator, length)`."""

    def sample(self, generator, batch, length):
        return Reverse.sample(self, seed(generator, length), batch, length)

    return {"sample": sample}


def flipped(made):
    return Batch(made.prompt, made.target.flip(1))


def mostly_zero(made):
    """Nine digits of ten become 0, as where a long answer hardly depends on its prompt."""
    return Batch(*(x.where(x >= 9, 0) for x in (made.prompt, made.target)))


def fixed(generator, length):
    return torch.Generator().manual_seed(0)


def draws_elsewhere_too(generator, length):
    torch.rand(1)
    return generator


def one_for_all(self, generator, batch, length):
    made = Reverse.sample(self, generator, 1, length)
    return Batch(made.prompt.repeat(batch, 1), made.target.repeat(batch, 1))


def right_padded(self, generator, batch, length):
    made = Reverse.sample(self, generator, batch, length)
    pad = torch.full((batch, 1), self.vocab.pad)
    return Batch(torch.cat([made.prompt, pad], 1), made.target)


def exits(self, prompt):
    raise SystemExit(0)


def copies_the_first(self, n):
    return Computation(n + 1, tuple(Step(n + 1 + t, same, (1,)) for t in range(1, n + 1)))


def other_operators(self, n):
    return Computation(n + 1, tuple(Step(n + 1 + t, lambda u: u, (t,)) for t in range(n, 0, -1)))


REVERSE = {
    "gives other operators at every call": {"computation": other_operators},
    "computation gives another answer .* expected .* got": {"computation": copies_the_first},
    r"disagree on '\d\d=' \(length 2\)": resampled(lambda made, n: flipped(made)),
    r"disagree on .* \(length 14\)": resampled(lambda m, n: flipped(m) if 13 < n < 40 else m),
    r"disagree on .* \(length 58\)": resampled(lambda m, n: flipped(m) if n >= 50 else m),
    "must return a Batch": resampled(lambda made, n: (made.prompt, made.target)),
    "float32": resampled(lambda made, n: Batch(made.prompt, made.target.float())),
    "has the id 12": resampled(lambda m, n: Batch(m.prompt, torch.full_like(m.target, 12))),
    "two samples": seeded(lambda generator, n: torch.Generator().manual_seed(torch.seed())),
    "length 13: seeds 0 and 1": seeded(fixed),
    "length 58: seeds 0 and 1": seeded(lambda g, n: g if n < 50 else fixed(g, n)),
    "global generator": seeded(draws_elsewhere_too),
    "instances of a batch are equal": {"sample": one_for_all},
    "pad right of a prompt token": {
        "sample": right_padded,
        "max_tokens": lambda self, length: (length + 2, length),
    },
    "measure says 2": {"measure": lambda self, prompt: len(prompt)},
    "max_tokens says 0": {"max_tokens": lambda self, length: (length + 1, length - 1)},
    "expected TaskError": {"max_length": 20, "check_length": lambda self, length: None},
    r"ZeroDivisionError: .*, at test_task_testing.py:\d+": {
        "solve": lambda self, prompt: [len(prompt) // 0]
    },
    r"SystemExit: 0, at test_task_testing.py:\d+ in exits": {"solve": exits},
    "example and solve disagree": {"example": "12=12"},
    "unknown symbol at 'ab=ba'": {"example": "ab=ba"},
    "decoded as '1 2 = 2 1'": {
        "vocab": Vocab(Reverse.vocab.symbols, separator=" "),
        "example": "1  2 = 2 1",
    },
    "version": {"version": True},
    "Broken.paper is empty": {"paper": ""},
    "chance 0.5 is wrong, expected 0.07 to 0.1": {"chance": 0.5},
    "chance 0.01 is wrong": {"chance": 0.01},
    r"chance says 0.10 at length \d+, where the best constant answer gets 0.9.*, 0.9": {
        **resampled(lambda m, n: mostly_zero(m) if n > 13 else m),
    },
    "chance says 0.10 at length 101, where the best constant answer gets 1.00": {
        **resampled(lambda m, n: Batch(m.prompt * 0 + 3, m.target * 0 + 3) if n == 101 else m),
    },
    "best_constant says 0.12 at length": {
        **resampled(lambda m, n: mostly_zero(m) if n > 13 else m),
        "best_constant": ((10, 0.12),),
    },
    "best_constant has 0.5 at length 10, expected 0.1": {"best_constant": ((10, 0.5),)},
    "must be a Vocab": {"vocab": list("0123456789=")},
    "no token of a target": {"counted": lambda self, target: target == self.vocab.pad},
    r"slots .* got tensor\(\[\[1\., 1": {"slots": lambda self, ids: 0 * ids + 1.0},
    r"slots .* got tensor\(\[\]": {"slots": lambda self, ids: ids[:, :0]},
    "slots .* 0 or more": {"slots": lambda self, ids: 0 * ids - 1},
    "slots .* later tokens": {"slots": lambda self, ids: (ids.flip(1) < 10).cumsum(1).flip(1)},
    "slots .* change with padding": {"slots": lambda self, ids: (0 * ids + 1).cumsum(1) - 1},
    "padding has a slot": {"slots": lambda self, ids: ids},
    "slots .* another sample": {"slots": lambda self, ids: (ids < 10) * (ids < 10).cumsum(1)},
    "counted has shape": {"counted": lambda self, target: (target != self.vocab.pad)[:, :1]},
}


@pytest.mark.parametrize("words", REVERSE)
def test_a_broken_task_is_caught(words):
    broken = type("Broken", (Reverse,), REVERSE[words])()
    with pytest.raises(AssertionError, match=words):
        check_task(broken)


def test_padding_that_is_counted_is_caught():
    class PaddingCounted(DynStrCpy):
        def counted(self, target):
            return torch.ones_like(target, dtype=torch.bool)

    with pytest.raises(AssertionError, match="padding"):
        check_task(PaddingCounted())


def test_lengths_without_instances_are_skipped():
    class Short(Reverse):
        max_length = 3

    check_task(Short(), lengths=(2, 50))
    with pytest.raises(AssertionError, match="none of the lengths"):
        check_task(Short(), lengths=(50,))
