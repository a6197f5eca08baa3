"""Run a Turing machine in plain Python."""

from collections.abc import Iterator
from dataclasses import dataclass

from harness.turing.machine import Machine, MachineError


@dataclass(frozen=True)
class Configuration:
    """The tape, up to the last cell of the input or visited by the head; head and state."""

    tape: tuple[int, ...]
    head: int
    state: int


def step(machine: Machine, now: Configuration) -> Configuration:
    """Return the configuration after one move.

    The head stays on the first cell instead of leaving it; right of the last cell is a blank.
    Errors: MachineError in a final state.
    """
    if now.state in machine.final:
        raise MachineError(f"state {machine.states[now.state]} is final: the machine has halted")
    move = machine.transitions[now.state, now.tape[now.head]]
    tape = (*now.tape[: now.head], move.symbol, *now.tape[now.head + 1 :])
    head = max(0, now.head + move.direction)
    if head == len(tape):
        tape = (*tape, machine.blank)
    return Configuration(tape, head, move.state)


def run(
    machine: Machine, first: Configuration, steps: int | None = None
) -> Iterator[Configuration]:
    """Yield the first configuration and those after it, up to a final state or after `steps`.

    Errors: without `steps`, MachineError for a run longer than the machine's limit.
    """
    yield first
    now, limit = first, machine.limit(len(first.tape)) if steps is None else steps
    for _ in range(limit):
        if now.state in machine.final:
            return
        now = step(machine, now)
        yield now
    if steps is None and now.state not in machine.final:
        tape = " ".join(machine.symbols[symbol] for symbol in first.tape)
        raise MachineError(
            f"the machine has not halted after {limit} steps on {tape!r}: increase max_steps"
        )
