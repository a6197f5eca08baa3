"""Follow a Turing machine, random or of a file, for one step, several or up to its end."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, TaskError, Vocab, pack
from harness.tasks.formats import Columns, beside, mark, whole
from harness.turing.machine import MachineError, random_machine, read_machine
from harness.turing.render import answer_words, prompt_words, read_prompt, scratchpad, vocabulary
from harness.turing.simulate import Configuration, begin, run
from harness.turing.tapes import Tables, Tapes
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
    machine of one's own (docs/turing-programs.md). `steps`, how many to write, separated by |; 0 is
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
        machine, device = self.machine, generator.device
        tables = Tables(machine, device)
        now = self._first(generator, batch, length)
        bar = mark(now.state, self.vocab.id("|"))
        prompt, kept = beside(mark(now.state, self.vocab.id("$")), now.cells(tables), bar)
        parts: list[Columns] = []
        for _ in range(self._limit(length)):
            runs = ~tables.final[now.state]
            if not bool(runs.any()):
                break
            move, after = now.step(tables)
            both = beside(self._move(move), after.cells(tables), bar)
            parts.append((both[0], both[1] & runs))
            now = after.where(runs, now)
        if self.steps == 0 and not bool(tables.final[now.state].all()):
            raise TaskError(
                f"{self.name}: the machine has not halted after {self._limit(length)} steps on "
                f"every input of {length} symbols: raise max_steps in its file"
            )
        target, in_target = self._answer(parts, now, tables)
        widths = [int(there.sum(1).max()) for there in (kept, in_target)]
        return Batch(
            prompt=pack(prompt, kept, widths[0], self.vocab.pad, right=True),
            target=pack(target, in_target, widths[1], self.vocab.pad),
        )

    def solve(self, prompt: list[int]) -> list[int]:
        words = [self.vocab.symbols[token] for token in prompt]
        first = read_prompt(self.machine, words)
        try:
            found = [*run(self.machine, first, self.steps or None)]
        except MachineError as error:
            raise TaskError(f"{self.name}: {error}") from error
        words = answer_words(self.machine, found, self.scratchpad)
        return [self.vocab.id(word) for word in words]

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

    def _example(self) -> str:
        """A run on few cells, of a machine that need not halt."""
        machine = self.machine
        for length in (3, 2, 1):
            first = begin(machine, tuple((machine.inputs * 3)[:length]))
            if self.steps:
                states = [i for i in range(len(machine.states)) if i not in machine.final]
                first = Configuration(first.tape, 0, states[0])
            try:
                found = [*run(machine, first, self.steps or None)]
            except MachineError:
                continue
            if self.scratchpad:
                return scratchpad(machine, found)
            return " ".join(prompt_words(machine, first) + answer_words(machine, found, False))
        raise ValueError("the machine does not halt within max_steps on any short input")

    def _first(self, generator: torch.Generator, batch: int, length: int) -> Tapes:
        machine, device = self.machine, generator.device

        def pick(values: list[int], shape: tuple[int, ...]) -> Tensor:
            index = torch.randint(len(values), shape, generator=generator, device=device)
            return torch.tensor(values, device=device)[index]

        shape, wide = (batch, length), length + self._limit(length)
        whole = self.steps == 0
        tape = torch.full((batch, wide), machine.blank, device=device)
        symbols = [*machine.inputs] if whole else [*range(len(machine.symbols))]
        tape[:, :length] = pick(symbols, shape)
        states = [i for i in range(len(machine.states)) if i not in machine.final]
        return Tapes(
            tape,
            torch.full((batch, 1), length, device=device),
            pick([0] if whole else [*range(length)], (batch, 1)),
            pick([machine.start] if whole else states, (batch, 1)),
        )

    def _answer(self, parts: list[Columns], last: Tapes, tables: Tables) -> Columns:
        """All steps, or the last tape, and a full stop in place of the last separator."""
        stop = mark(last.state, self.vocab.id("."))
        if not self.scratchpad:
            return beside(last.cells(tables), stop)
        if not parts:
            return stop
        tokens, kept = beside(*parts)
        column = torch.arange(tokens.shape[1], device=tokens.device)
        end = torch.where(kept, column, -1).amax(1, keepdim=True)
        return beside((tokens, kept & (column != end)), stop)

    def _move(self, move: tuple[Tensor, Tensor, Tensor]) -> Columns:
        state, symbol, direction = move
        index = self.vocab.id
        words = [
            torch.full_like(state, index("(")),
            state + 2 * len(self.machine.symbols),
            symbol,
            torch.where(direction < 0, index("L"), index("R")),
            torch.full_like(state, index(")")),
        ]
        return whole(torch.cat(words, 1))
