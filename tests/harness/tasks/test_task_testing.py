"""check_task finds broken tasks and says what is wrong."""

import pytest
import torch

from harness.tasks.base import Batch, Vocab
from harness.tasks.dyn_str_cpy import DynStrCpy
from harness.tasks.reverse import Reverse
from harness.tasks.testing import check_task


class WrongTarget(Reverse):
    def sample(self, generator, batch, length):
        made = super().sample(generator, batch, length)
        return Batch(made.prompt, made.target.flip(1))


class WrongLength(Reverse):
    def measure(self, prompt):
        return len(prompt)


class Unseeded(Reverse):
    def sample(self, generator, batch, length):
        return super().sample(torch.Generator().manual_seed(torch.seed()), batch, length)


class Constant(Reverse):
    def sample(self, generator, batch, length):
        return super().sample(torch.Generator().manual_seed(0), batch, length)


class OneForAll(Reverse):
    def sample(self, generator, batch, length):
        made = super().sample(generator, 1, length)
        return Batch(made.prompt.repeat(batch, 1), made.target.repeat(batch, 1))


class DrawsElsewhereToo(Reverse):
    def sample(self, generator, batch, length):
        torch.rand(1)
        return super().sample(generator, batch, length)


class RightPadded(Reverse):
    def sample(self, generator, batch, length):
        made = super().sample(generator, batch, length)
        pad = torch.full((batch, 1), self.vocab.pad)
        return Batch(torch.cat([made.prompt, pad], 1), made.target)

    def max_tokens(self, length):
        return length + 2, length


class WithEos(Reverse):
    def sample(self, generator, batch, length):
        made = super().sample(generator, batch, length)
        return Batch(made.prompt, torch.full_like(made.target, self.vocab.eos))


class TooShort(Reverse):
    def max_tokens(self, length):
        return length + 1, length - 1


class Floats(Reverse):
    def sample(self, generator, batch, length):
        made = super().sample(generator, batch, length)
        return Batch(made.prompt, made.target.float())


class SilentlyTooLong(Reverse):
    max_length = 20

    def check_length(self, length):
        pass


class OtherAlphabet(Reverse):
    example = "ab=ba"


class SamplesPairs(Reverse):
    def sample(self, generator, batch, length):
        made = super().sample(generator, batch, length)
        return made.prompt, made.target


class WrongWhenLong(Reverse):
    def sample(self, generator, batch, length):
        made = super().sample(generator, batch, length)
        return made if length < 50 else Batch(made.prompt, made.target.flip(1))


class WrongInBetween(Reverse):
    def sample(self, generator, batch, length):
        made = super().sample(generator, batch, length)
        return Batch(made.prompt, made.target.flip(1)) if 13 < length < 40 else made


class ConstantWhenLong(Reverse):
    def sample(self, generator, batch, length):
        generator = generator if length < 50 else torch.Generator().manual_seed(0)
        return super().sample(generator, batch, length)


class VersionTrue(Reverse):
    version = True


class Exits(Reverse):
    def solve(self, prompt):
        raise SystemExit(0)


class SolvesNothing(Reverse):
    def solve(self, prompt):
        return [len(prompt) // 0]


class WrongExample(Reverse):
    example = "12=12"


class SpacedExample(Reverse):
    vocab = Vocab(Reverse.vocab.symbols, separator=" ")
    example = "1  2 = 2 1"


class NoPaper(Reverse):
    paper = ""


class Hopeful(Reverse):
    chance = 0.5


class Humble(Reverse):
    chance = 0.01


class NothingCounted(Reverse):
    def counted(self, target):
        return target == self.vocab.pad


class PaddingCounted(DynStrCpy):
    def counted(self, target):
        return torch.ones_like(target, dtype=torch.bool)


class OneCounted(Reverse):
    def counted(self, target):
        return super().counted(target)[:, :1]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (WrongTarget, r"sample and solve disagree on '\d\d=' \(length 2\)"),
        (WrongLength, "measure says 2 for a sample of length 1"),
        (Unseeded, "two samples under seed 0 differ"),
        (Constant, "seeds 0 and 1 give the same batch"),
        (OneForAll, "all instances of a batch are one"),
        (DrawsElsewhereToo, "sample draws from torch's generator too"),
        (RightPadded, "pad right of a prompt token"),
        (WithEos, "EOS is added by the track"),
        (TooShort, "target is 1 tokens wide, max_tokens says 0"),
        (Floats, "target is torch.float32, not int64"),
        (SilentlyTooLong, "which `lengths` leaves out"),
        (WrongExample, "example and solve disagree on '12='"),
        (OtherAlphabet, "the example 'ab=ba': unknown symbol at 'ab=ba'"),
        (SamplesPairs, r"sample must return a Batch\(prompt=..., target=...\), returned a tuple"),
        (SolvesNothing, r"ZeroDivisionError: .*, at test_task_testing.py:\d+ in solve"),
        (WrongWhenLong, r"sample and solve disagree on .* \(length 58\)"),
        (ConstantWhenLong, "length 58: seeds 0 and 1 give the same batch"),
        (WrongInBetween, r"sample and solve disagree on .* \(length 14\)"),
        (VersionTrue, "version must be a whole number from 1 on, was True"),
        (Exits, r"SystemExit: 0, at test_task_testing.py:\d+ in solve"),
        (SpacedExample, "comes back from the vocab as '1 2 = 2 1'"),
        (NoPaper, "NoPaper.paper is empty"),
        (
            Hopeful,
            r"chance 0.5 is wrong: .* 0.1\d of the tokens at the hardest place .* and 0.1\d at all",
        ),
        (Humble, "chance 0.01 is wrong: at length 13"),
        (NothingCounted, "no token of a target is counted"),
        (PaddingCounted, "length 2: counted holds padding"),
        (OneCounted, r"counted has shape \(64, 1\), targets \(64, 2\)"),
    ],
)
def test_broken_task_is_caught(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_task(broken())


def test_lengths_that_the_task_lacks_are_passed_over():
    class Short(Reverse):
        max_length = 3

    check_task(Short(), lengths=(2, 50))
    with pytest.raises(AssertionError, match="none of the lengths"):
        check_task(Short(), lengths=(50,))
