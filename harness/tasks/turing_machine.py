"""Follow a Turing machine, random or of a file, for one step, several or up to its end."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch

from harness.tasks.base import Batch, Task, TaskError, Vocab
from harness.turing.machine import MachineError, random_machine, read_machine
from harness.turing.render import answer_words, prompt_words, read_prompt, vocabulary
from harness.turing.simulate import Configuration, run
from pezoo.spec import choice

FORMATS = ("scratchpad", "plain")
MOST_TOKENS = 200_000  # of an answer


class TuringMachine(Task):
    """The tape of a machine, then its move and the next tape.

    $ a3 b1 a7 ~ s2 | ( s1 a6 L ) b3 a6 a7 ~ s1 .

    The symbol under the head is b1 for a1, and [x] for the x of a file's machine; ~ stands before
    the state; a move is the next state, the symbol to write and the direction. Left of the first
    cell the head stays; right of the last one there is a blank.

    Options: `machine`, the number of a random machine of 5 states and 15 symbols; or `file`, a
    machine of your own (docs/turing-programs.md). `steps`, how many to write, separated by |; 0 is
    as many as the machine takes from its start to a final state, with its inputs on the tape, up to
    the file's max_steps. `format`, "scratchpad", or "plain" for the last tape alone.
    With steps above 0, tape, head and state are uniform (the state among those that are not final);
    a machine that halts sooner writes fewer steps.

    Vocabulary: symbols, those under the head, states, "$", "~", "|", "(", ")", ".", "L", "R".
    Length n: the number of cells. Chance: 1 over the number of symbols that tapes are drawn from.
    Errors: TaskError for a run that does not end. A file's checksum is part of the version, so that
    a changed machine is another task.

    Paper: Hou et al. 2024, "Universal Length Generalization with Turing Programs", Section 5.3 and
    Appendix F, which has one step, tapes of 2 symbols and more, and these tokens, but shows no
    whole example: their order is ours, and so is what happens at the ends of the tape.
    """

    name = "turing_machine"
    summary = "the next tape of a Turing machine"
    paper = "Hou et al. 2024, Section 5.3"
    versioned_by = ("file",)
    family = "rewriting"
    best_constant = ((6, 0.39), (10, 0.32), (20, 0.23), (50, 0.15), (182, 0.09), (500, 0.08))
    example = "$ b1 a2 a3 ~ s1 | ( s5 a4 R ) a4 b2 a3 ~ s5 ."

    def __init__(
        self,
        *,
        machine: int = 0,
        file: str | None = None,
        steps: int = 1,
        format: str = "scratchpad",
    ) -> None:
        if file == "":
            raise ValueError("file must be the path of a machine's TOML file, was empty")
        if not 0 <= machine < 10**6:
            raise ValueError(f"machine must be 0 to 999999, was {machine}")
        if not 0 <= steps <= 100:
            raise ValueError(f"steps must be 1 to 100, or 0 for a whole run, was {steps}")
        choice("format", format, FORMATS)
        if file and machine:
            raise ValueError(f"file={file} is a machine already: leave out machine={machine}")
        self.machine = read_machine(Path(file)) if file else random_machine(machine)
        if steps == 0 and not self.machine.final:
            raise ValueError("steps=0 needs a machine with a final state, which this one lacks")
        if steps == 0 and self.machine.start in self.machine.final:
            start = self.machine.states[self.machine.start]
            raise ValueError(f"steps=0 needs a start that is not final, was {start}")
        if len(self.machine.final) == len(self.machine.states):
            raise ValueError("every state of the machine is final: there is no step to take")
        if file:
            self.version = 1_000_000 * self.version + self.machine.checksum
        self.steps, self.scratchpad = steps, format == "scratchpad"
        self.vocab = Vocab(vocabulary(self.machine), separator=" ")
        self._index = {word: i for i, word in enumerate(self.vocab.symbols)}
        inputs = len(self.machine.inputs) if steps == 0 else len(self.machine.symbols)
        self.chance = 1 / max(2, inputs)
        if not self.lengths(1, 1):
            raise ValueError(
                f"max_steps allows {self._limit(1):,} steps on one symbol: answers are limited to "
                f"{MOST_TOKENS:,} tokens"
            )
        self.example = self._example()

    def lengths(self, low: int, high: int) -> list[int]:
        found = super().lengths(low, high)
        return [n for n in found if self.max_tokens(n)[1] <= MOST_TOKENS]

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        drawn = self._draw(generator, batch, length)
        prompts = [self._ids(prompt_words(self.machine, first)) for first in drawn]
        targets = [self._ids(self._answer(first)) for first in drawn]
        width = max(map(len, targets))
        filled = [target + [self.vocab.pad] * (width - len(target)) for target in targets]
        device = generator.device
        return Batch(torch.tensor(prompts, device=device), torch.tensor(filled, device=device))

    def solve(self, prompt: list[int]) -> list[int]:
        words = [self.vocab.symbols[token] for token in prompt]
        return self._ids(self._answer(read_prompt(self.machine, words)))

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) - 4

    def max_tokens(self, length: int) -> tuple[int, int]:
        steps = self._limit(length)
        last = length + 2 + steps  # the longest tape, ~ and the state
        every = steps * (length + 2) + steps * (steps + 1) // 2
        answer = every + 6 * steps if self.scratchpad else last + 1
        return length + 4, answer

    def _limit(self, length: int) -> int:
        return self.steps or max(1, self.machine.limit(length))

    def _running(self) -> list[int]:
        """Return the states that are not final."""
        return [i for i in range(len(self.machine.states)) if i not in self.machine.final]

    def _ids(self, words: list[str]) -> list[int]:
        return [self._index[word] for word in words]

    def _answer(self, first: Configuration) -> list[str]:
        """Run the machine. Errors: TaskError for a run that does not end."""
        try:
            found = [*run(self.machine, first, self.steps or None)]
        except MachineError as error:
            raise TaskError(f"{self.name}: {error}") from error
        return answer_words(self.machine, found, self.scratchpad)

    def _draw(self, generator: torch.Generator, batch: int, length: int) -> list[Configuration]:
        """Draw the first configurations: of whole runs only the tape is random."""

        def pick(values: Sequence[int], width: int) -> list[list[int]]:
            shape = (batch, width)
            index = torch.randint(len(values), shape, generator=generator, device=generator.device)
            return [[values[i] for i in row] for row in index.tolist()]

        machine, whole = self.machine, self.steps == 0
        tapes = pick(machine.inputs if whole else range(len(machine.symbols)), length)
        heads = pick([0] if whole else range(length), 1)
        states = pick([machine.start] if whole else self._running(), 1)
        drawn = zip(tapes, heads, states, strict=True)
        return [Configuration(tuple(tape), head, state) for tape, (head,), (state,) in drawn]

    def _example(self) -> str:
        """Write a run on at most three cells; a machine need not halt on all of them."""
        machine = self.machine
        for length in (3, 2, 1):
            state = self._running()[0] if self.steps else machine.start
            first = Configuration(tuple((machine.inputs * 3)[:length]), 0, state)
            with suppress(TaskError):
                return " ".join([*prompt_words(machine, first), *self._answer(first)])
        raise ValueError("the machine does not halt within max_steps on any short input")
