"""Runs of a machine, in plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harness.turing.machine import Machine, MachineError


@dataclass(frozen=True)
class Configuration:
    """The tape up to its last cell that was part of the input or under the head; head and state."""

    tape: tuple[int, ...]
    head: int
    state: int


def begin(machine: Machine, tape: tuple[int, ...]) -> Configuration:
    """The head on the leftmost cell, in the state that the machine starts in."""
    return Configuration(tape, 0, machine.start)


def step(machine: Machine, now: Configuration) -> Configuration:
    """The configuration after one move. Left of the first cell there is none: the head stays.

    Right of the last one there is a blank. Errors: MachineError in a final state.
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
    """The first configuration and those after it: `steps` of them, or up to a final state.

    Without `steps`, errors: MachineError where the machine's own limit is not enough.
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
            f"the machine has not halted after {limit} steps on {tape!r}: max_steps says that many"
        )
