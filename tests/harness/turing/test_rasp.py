"""The RASP program against the simulator, for as long as no n-gram repeats."""

import random
from itertools import count, pairwise

import numpy as np
import pytest
from rasp import (
    BOS,
    EMPTY,
    EOS,
    SEP,
    Program,
    cumsum,
    in_memory,
    repeats,
    select,
    shift_right,
    theorem_4_1,
    where,
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


def test_the_primitives():
    x = np.array([3, 0, 5, 0, 7])
    assert shift_right(x, 2, default=9).tolist() == [9, 9, 3, 0, 5]
    assert cumsum(x).tolist() == [1, 1, 2, 2, 3]
    assert where(x, x, x + 1).tolist() == [3, 1, 5, 1, 7]
    assert select(x, x, np.equal).sum() == 6  # causal


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


def test_writing_alone_it_goes_on_as_the_machine_does():
    machine, found = drawn(5)
    assert len(found) > 3
    program = Program(machine, 3)
    want = program.tokens(found)
    text = program.tokens(found[:1])
    while len(text) < len(want):
        predicted, several = program.predict(text)
        assert not several[-1]
        text = np.append(text, predicted[-1])
    assert text.tolist() == want.tolist()


def test_it_says_where_an_ngram_repeats():
    """1 2 1 2: after "1 2" there are two places to go on from."""
    machine = random_machine(0)
    start = Configuration((1, 2, 1, 2, 9, 3), 5, 0)
    program = Program(machine, 2)
    text = program.tokens(run(machine, start, 1))
    several = program.predict(text)[1]
    first = int(np.flatnonzero(text == SEP)[0])
    places = np.flatnonzero(several).tolist()
    assert places == [first + 3, first + 5]
    assert not Program(machine, 3).predict(text)[1].any()


def test_the_head_stays_at_the_left_end():
    seed = next(s for s in range(50) if random_machine(s).transitions[0, 4].direction < 0)
    machine = random_machine(seed)
    found = [*run(machine, Configuration((4, 5, 6, 7), 0, 0), 1)]
    assert found[1].head == 0
    program = Program(machine, 2)
    text = program.tokens(found)
    predicted, _ = program.predict(text)
    first = int(np.flatnonzero(text == SEP)[0])
    assert predicted[first:-1].tolist() == text[first + 1 :].tolist()
    assert predicted[first] == BOS


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


def test_the_conditions_of_theorem_4_1():
    start = Configuration((0, 1, 2, 3, 4), 2, 1)
    assert theorem_4_1([start], 2)
    assert not theorem_4_1([start, Configuration((0, 1, 2, 0, 1), 4, 1)], 2)
    assert theorem_4_1([Configuration((0, 1, 2, 0, 1), 0, 1)], 2)  # the head stands between
    assert not theorem_4_1([start, Configuration((0, 1, 2, 3, 4, 5), 5, 1)], 2)


@pytest.mark.parametrize("n", [0, 12])
def test_ngrams_that_exceed_an_integer_are_errors(n):
    with pytest.raises(ValueError, match="do not fit"):
        Program(random_machine(0), n)


def test_too_many_configurations_are_an_error():
    program = Program(random_machine(0, states=1, symbols=2), 20)  # 7 tokens: 2^63 / 7^20 = 115.6
    text = np.array([BOS, 4, 6, EOS, SEP] * 113)
    with pytest.raises(ValueError, match="at most 113"):
        program.predict(np.append(text, SEP))
    program.predict(text)
