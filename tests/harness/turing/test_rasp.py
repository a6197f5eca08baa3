"""The RASP program against the simulator, for as long as no n-gram repeats."""

import random
from itertools import count, pairwise

import numpy as np
import pytest
from rasp import (
    EMPTY,
    SEP,
    Program,
    in_memory,
    repeats,
    theorem_4_1,
)

from harness.turing.machine import Machine, Move, random_machine
from harness.turing.simulate import Configuration, run


def drawn(seed, cells=10, steps=6):
    """A random machine's run on a random tape, as long as it stays in memory."""
    draw = random.Random(seed)
    machine = random_machine(seed)
    tape = tuple(draw.randrange(15) for _ in range(cells))
    first = Configuration(tape, draw.randrange(cells), draw.randrange(5))
    found = []
    for now in run(machine, first, steps):
        if not in_memory([first, now]):
            break
        found.append(now)
    return machine, found


def later_repeats(program, text):
    """Return True if a configuration after the first has an n-gram twice."""
    cuts = [-1, *np.flatnonzero(text == SEP)]
    parts = [text[a + 1 : b].tolist() for a, b in pairwise(cuts)]
    return any(repeats(part, program.n) for part in parts[1:])


@pytest.mark.parametrize("n", [2, 3])
def test_it_simulates_100_random_machines_while_no_ngram_repeats(n):
    machines, seeds = 0, count()
    while machines < 100:  # of which a whole configuration is compared at least
        seed, compared = next(seeds), 0
        machine, found = drawn(seed)
        program = Program(machine, n)
        text = program.tokens(found)
        predicted, several = program.predict(text)
        first = int(np.flatnonzero(text == SEP)[0])
        assert (predicted[:first] == EMPTY).all()
        assert bool(several.any()) == later_repeats(program, text)
        for place in range(first, len(text) - 1):
            if several[place]:
                break
            assert predicted[place] == text[place + 1], (seed, place)
            compared += 1
        machines += compared >= first + 1
    assert next(seeds) < {2: 130, 3: 110}[n]


def test_where_theorem_4_1_holds_every_token_is_right():
    held = 0
    for seed in range(40):
        machine, program = random_machine(seed), Program(random_machine(seed), 3)
        draw = random.Random(seed)
        first = Configuration(tuple(draw.sample(range(15), 8)), draw.randrange(8), 0)
        found = [*run(machine, first, 3)]
        if not theorem_4_1(found, 3):
            continue
        text = program.tokens(found)
        predicted, _ = program.predict(text)
        start = int(np.flatnonzero(text == SEP)[0])
        assert predicted[start:-1].tolist() == text[start + 1 :].tolist()
        held += 1
    assert held > 20


@pytest.mark.parametrize("direction", [-1, 1])
def test_after_a_final_state_nothing_moves(direction):
    machine = Machine(
        states=("go", "stop"),
        symbols=tuple("xyzvw"),
        heads=tuple("XYZVW"),
        transitions={(0, symbol): Move(4, direction, 1) for symbol in range(5)},
        final=frozenset({1}),
    )
    for head in (0, 1, 2):
        found = [*run(machine, Configuration((0, 1, 2, 3), head, 0), 5)]
        assert len(found) == 2
        program = Program(machine, 2)
        text = program.tokens([*found, found[-1], found[-1]])
        predicted, several = program.predict(text)
        first = int(np.flatnonzero(text == SEP)[0])
        assert not several.any()
        assert predicted[first:-1].tolist() == text[first + 1 :].tolist()
