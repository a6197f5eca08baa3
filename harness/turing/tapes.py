"""Many tapes of one Turing machine, step by step side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.turing.machine import Machine


class Tables:
    """A machine's moves as tensors (states, symbols); a final state stays as it is."""

    def __init__(self, machine: Machine, device: torch.device) -> None:
        shape = len(machine.states), len(machine.symbols)
        self.symbol = torch.arange(shape[1], device=device).repeat(shape[0], 1)
        self.state = torch.arange(shape[0], device=device)[:, None].repeat(1, shape[1])
        self.direction = torch.zeros(shape, dtype=torch.int64, device=device)
        for key, move in machine.transitions.items():
            self.symbol[key], self.state[key] = move.symbol, move.state
            self.direction[key] = move.direction
        self.final = torch.tensor([i in machine.final for i in range(shape[0])], device=device)
        self.symbols = shape[1]
        self.tilde = 2 * shape[1] + shape[0] + 1  # the id of "~"


class Tapes:
    """tape (B, wide), how many cells of it are in use, head and state, (B, 1) each."""

    def __init__(self, tape: Tensor, size: Tensor, head: Tensor, state: Tensor) -> None:
        self.tape, self.size, self.head, self.state = tape, size, head, state

    def step(self, tables: Tables) -> tuple[tuple[Tensor, Tensor, Tensor], Tapes]:
        """The moves (next state, symbol, direction), and the tapes after them."""
        read = self.tape.gather(1, self.head)
        symbol, state = tables.symbol[self.state, read], tables.state[self.state, read]
        direction = tables.direction[self.state, read]
        head = (self.head + direction).clamp(0, self.tape.shape[1] - 1)
        size = torch.maximum(self.size, head + 1)
        after = Tapes(self.tape.scatter(1, self.head, symbol), size, head, state)
        return (state, symbol, direction), after

    def cells(self, tables: Tables) -> tuple[Tensor, Tensor]:
        """The tape, the head's symbol under its own name, ~ and the state; which are there."""
        column = torch.arange(self.tape.shape[1], device=self.tape.device)
        tape = self.tape + tables.symbols * (column == self.head)
        tilde = torch.full_like(self.state, tables.tilde)
        tokens = torch.cat([tape, tilde, self.state + 2 * tables.symbols], 1)
        always = torch.ones_like(self.state, dtype=torch.bool)
        return tokens, torch.cat([column < self.size, always, always], 1)

    def where(self, condition: Tensor, other: Tapes) -> Tapes:
        """These tapes where the condition (B, 1) holds, else the others."""
        pairs = zip(
            (self.tape, self.size, self.head, self.state),
            (other.tape, other.size, other.head, other.state),
            strict=True,
        )
        return Tapes(*(torch.where(condition, one, two) for one, two in pairs))
