"""Write a run as text: the tape, the state, and for each step the move and the tape after it.

    $ a3 b1 a7 ~ s2 | ( s1 a6 L ) b3 a6 a7 ~ s1 | ( s4 a2 R ) a2 b6 a7 ~ s4 .

The symbol under the head is b1 instead of a1; ~ precedes the state, | ends the prompt and separates
steps. A move is the next state, the symbol written and the direction. Hou et al. 2024, Appendix F,
lists these tokens, with a comma inside moves, but not the order of the others.
"""

from collections.abc import Iterable

from harness.turing.machine import MARKS, Machine
from harness.turing.simulate import Configuration


def vocabulary(machine: Machine) -> tuple[str, ...]:
    """Return the symbols, those under the head, the states, then the marks."""
    return (*machine.symbols, *machine.heads, *machine.states, *MARKS)


def tape_words(machine: Machine, now: Configuration) -> list[str]:
    """Write a configuration: its tape, ~ and its state."""
    cells = [machine.symbols[symbol] for symbol in now.tape]
    cells[now.head] = machine.heads[now.tape[now.head]]
    return [*cells, "~", machine.states[now.state]]


def prompt_words(machine: Machine, first: Configuration) -> list[str]:
    """Write a prompt."""
    return ["$", *tape_words(machine, first), "|"]


def move_words(machine: Machine, now: Configuration) -> list[str]:
    """Write the move from a configuration."""
    move = machine.transitions[now.state, now.tape[now.head]]
    direction = "L" if move.direction < 0 else "R"
    return ["(", machine.states[move.state], machine.symbols[move.symbol], direction, ")"]


def answer_words(
    machine: Machine, configurations: Iterable[Configuration], scratchpad: bool = True
) -> list[str]:
    """Write an answer: every step, or the last tape alone."""
    first, *later = configurations
    if not scratchpad:
        return [*tape_words(machine, later[-1] if later else first), "."]
    words, now = [], first
    for after in later:
        words += [*move_words(machine, now), *tape_words(machine, after), "|"]
        now = after
    return [*words[:-1], "."]


def scratchpad(machine: Machine, configurations: Iterable[Configuration]) -> str:
    """Write prompt and answer."""
    found = [*configurations]
    return " ".join([*prompt_words(machine, found[0]), *answer_words(machine, found)])


def read_prompt(machine: Machine, words: list[str]) -> Configuration:
    """Return the configuration of a prompt. Errors: ValueError for other texts."""
    cells = words[1:-3]
    under = [i for i, cell in enumerate(cells) if cell in machine.heads]
    if len(under) != 1 or words[0] != "$" or words[-1] != "|" or words[-3] != "~":
        raise ValueError(f"expected $ tape ~ state | with one head, was {' '.join(words)}")
    plain = [*cells]
    plain[under[0]] = machine.symbols[machine.heads.index(cells[under[0]])]
    tape = tuple(machine.symbols.index(cell) for cell in plain)
    return Configuration(tape, under[0], machine.states.index(words[-2]))
