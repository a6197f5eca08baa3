"""Machines: random ones, those of files, their runs, their texts."""

import tomllib

import pytest

from harness.turing.machine import (
    MARKS,
    MachineError,
    Move,
    machine_of,
    random_machine,
    read_machine,
)
from harness.turing.render import answer_words, prompt_words, read_prompt, scratchpad
from harness.turing.simulate import Configuration, run, step

GOOD = """
states = ["go", "stop"]
symbols = ["x", "y", "_"]
final = ["stop"]
[transitions.go]
x = ["y", "R", "go"]
y = ["x", "L", "go"]
_ = ["_", "L", "stop"]
"""


def of(text):
    return machine_of(tomllib.loads(text))


def test_random_machines_have_the_papers_sizes_and_never_change():
    machine = random_machine(0)
    assert (len(machine.states), len(machine.symbols)) == (5, 15)
    assert len(machine.transitions) == 75
    assert machine.transitions[0, 0] == Move(3, 1, 4)  # later versions must draw the same
    assert machine == random_machine(0) != random_machine(1)
    assert len({random_machine(i).checksum for i in range(10)}) == 10
    moves = [move for i in range(40) for move in random_machine(i).transitions.values()]
    assert abs(sum(move.direction for move in moves)) < 0.1 * len(moves)
    assert {move.symbol for move in moves} == {*range(15)}
    assert {move.state for move in moves} == {*range(5)}


def test_a_run_by_hand():
    machine = of(GOOD)
    found = [*run(machine, Configuration((0, 0), 0, machine.start))]
    assert [(now.tape, now.head, now.state) for now in found] == [
        ((0, 0), 0, 0),
        ((1, 0), 1, 0),
        ((1, 1, 2), 2, 0),  # right of the last cell: a blank
        ((1, 1, 2), 1, 1),
    ]
    assert scratchpad(machine, found) == (
        "$ [x] x ~ go | ( go y R ) y [x] ~ go | ( go y R ) y y [_] ~ go "
        "| ( stop _ L ) y [y] _ ~ stop ."
    )
    with pytest.raises(MachineError, match="final"):
        step(machine, found[-1])


def test_the_tape_ends_on_the_left():
    now = step(of(GOOD), Configuration((1, 0), 0, 0))
    assert now == Configuration((0, 0), 0, 0)


def test_a_run_of_so_many_steps_or_to_the_end():
    machine = of(GOOD)
    first = Configuration((0, 0, 0), 0, machine.start)
    assert len([*run(machine, first, steps=2)]) == 3
    assert len([*run(machine, first, steps=50)]) == 5
    short = of("max_steps = [1]\n" + GOOD)
    with pytest.raises(MachineError, match="not halted"):
        [*run(short, first)]


def test_prompts_are_read_back():
    machine = random_machine(3)
    now = Configuration((4, 0, 14, 7), 2, 3)
    assert read_prompt(machine, prompt_words(machine, now)) == now
    for words in ([], ["$"], ["$", "|"], ["$", "~", "s1", "|"], ["$", "a1", "a2", "~", "s1", "|"]):
        with pytest.raises(ValueError, match="with one head"):
            read_prompt(machine, words)
    assert answer_words(machine, [now], scratchpad=False)[-3:] == ["~", "s4", "."]


STATES, SYMBOLS, FINAL = 'states = ["go", "stop"]', 'symbols = ["x", "y", "_"]', 'final = ["stop"]'
Y = 'y = ["x", "L", "go"]'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (STATES, "", "states is missing"),
        (SYMBOLS, "symbols = 3", "symbols"),
        (SYMBOLS, "symbols = []", "symbols"),
        (SYMBOLS, 'symbols = ["x", "x", "_"]', "symbols has 'x' twice"),
        (SYMBOLS, 'symbols = ["x", "go", "_"]', "'go'"),
        (SYMBOLS, 'symbols = ["x", "L", "_"]', "'L'"),
        (SYMBOLS, 'symbols = ["x", "a b", "_"]', "'a b'"),
        (SYMBOLS, 'symbols = ["x", "y", "_", "[x]"]', r"'\[x\]'"),
        (FINAL, 'final = ["stpo"]', "did you mean stop"),
        (FINAL, 'final = ["go", "stop"]', "go is final"),
        (FINAL, "", "transitions.stop has no move for the symbol 'x'"),
        (FINAL, 'finals = ["stop"]', "did you mean final"),
        (FINAL, 'blank = "z"', "name in blank: 'z'"),
        (FINAL, "blank = [0]", "blank"),
        (FINAL, f"{FINAL}\nmax_steps = [-1]", "max_steps"),
        (FINAL, f"{FINAL}\nmax_steps = [true]", "max_steps"),
        (FINAL, f'{FINAL}\ninputs = ["q"]', "name in inputs: 'q'"),
        (FINAL, f"{FINAL}\nstart = 4", "start must be a text"),
        ("_ = [", "a.b = [", "a name with a dot"),
        ("[transitions.go]", "[transitions.g.o]", "a name with a dot"),
        ("[transitions.go]", "[transitions.og]", "name in transitions: 'og'"),
        (Y, "", "transitions.go has no move for the symbol 'y'"),
        (Y, 'y = ["x", "l", "go"]', "transitions.go.y"),
        (Y, 'y = ["x", "L", "og"]', "transitions.go.y: 'og'"),
        (Y, 'y = "xLgo"', "transitions.go.y"),
        (Y, 'y = [1, "L", "go"]', "transitions.go.y"),
        (Y, f'{Y}\nz = ["x", "L", "go"]', "'z'"),
    ],
)
def test_an_invalid_machine_is_named(old, new, words):
    assert old in GOOD
    with pytest.raises(MachineError, match=words):
        of(GOOD.replace(old, new))


def test_transitions_must_be_tables():
    with pytest.raises(MachineError, match="table"):
        of('states = ["a"]\nsymbols = ["b"]\ntransitions = 3')


@pytest.mark.parametrize(
    "content",
    [
        *(b"\xff\xfe", b"states = [", b"a = 1\na = 2"),
        *(GOOD.replace('["go", "stop"]', n, 1).encode() for n in ("1" * 5000, "0x" + "f" * 5000)),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content):
    path = tmp_path / "m.toml"
    path.write_bytes(content)
    with pytest.raises(MachineError, match=r"m\.toml"):
        read_machine(path)
    with pytest.raises(MachineError, match="Is a directory"):
        read_machine(tmp_path)


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert read_machine(path) == of(GOOD)


def test_names_differ_from_marks():
    assert not {*random_machine(0).symbols, *random_machine(0).states} & {*MARKS}
