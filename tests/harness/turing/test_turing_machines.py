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
from harness.turing.simulate import Configuration, begin, run, step

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
    found = [*run(machine, begin(machine, (0, 0)))]
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
    with pytest.raises(MachineError, match="state stop is final"):
        step(machine, found[-1])


def test_the_tape_ends_on_the_left():
    now = step(of(GOOD), Configuration((1, 0), 0, 0))
    assert now == Configuration((0, 0), 0, 0)


def test_a_run_of_so_many_steps_or_to_the_end():
    machine = of(GOOD)
    first = begin(machine, (0, 0, 0))
    assert len([*run(machine, first, steps=2)]) == 3
    assert len([*run(machine, first, steps=50)]) == 5
    short = of("max_steps = [1]\n" + GOOD)
    with pytest.raises(MachineError, match="not halted after 1 steps on 'x x x'"):
        [*run(short, first)]


def test_prompts_are_read_back():
    machine = random_machine(3)
    now = Configuration((4, 0, 14, 7), 2, 3)
    assert read_prompt(machine, prompt_words(machine, now)) == now
    with pytest.raises(ValueError, match="with one head"):
        read_prompt(machine, ["$", "a1", "a2", "~", "s1", "|"])
    for words in ([], ["$"], ["$", "|"], ["$", "~", "s1", "|"]):
        with pytest.raises(ValueError, match="with one head"):
            read_prompt(machine, words)
    assert answer_words(machine, [now], scratchpad=False)[-3:] == ["~", "s4", "."]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('states = ["go", "stop"]', "", "states is missing"),
        ('symbols = ["x", "y", "_"]', "symbols = 3", "symbols must be a list of names"),
        ('symbols = ["x", "y", "_"]', "symbols = []", "symbols must be 1 to 200 names, was 0"),
        ('["x", "y", "_"]', '["x", "x", "_"]', "symbols has 'x' twice"),
        ('["x", "y", "_"]', '["x", "go", "_"]', "'go' is a name twice"),
        ('["x", "y", "_"]', '["x", "L", "_"]', "none of"),
        ('["x", "y", "_"]', '["x", "a b", "_"]', "without blanks"),
        ('["x", "y", "_"]', '["x", "y", "_", "[x]"]', r"'\[x\]' is a name twice"),
        ('final = ["stop"]', 'final = ["stpo"]', "did you mean stop"),
        ('final = ["stop"]', 'final = ["go", "stop"]', "go is final and has none"),
        ('final = ["stop"]', 'blank = "z"', "unknown name in blank: 'z'"),
        ('final = ["stop"]', "", "transitions.stop has no move for the symbol 'x'"),
        ('final = ["stop"]', 'finals = ["stop"]', "unknown key 'finals'; did you mean final"),
        ('final = ["stop"]', 'final = ["stop"]\nmax_steps = [-1]', "max_steps must be"),
        ('final = ["stop"]', 'final = ["stop"]\nmax_steps = [true]', "max_steps must be"),
        ('final = ["stop"]', 'final = ["stop"]\ninputs = ["q"]', "unknown name in inputs: 'q'"),
        (
            'final = ["stop"]',
            'final = ["stop"]\nstart = 4',
            r"start must be a text .*, was 4",
        ),
        ('final = ["stop"]', "blank = [0]", r'blank must be a text such as "x", was \[0\]'),
        ("_ = [", "a.b = [", r'transitions.go.a.b: a name with a dot needs quotes, "a.b" = '),
        ("[transitions.go]", "[transitions.g.o]", r'with a dot needs quotes, \[transitions."g.o"'),
        ('y = ["x", "L", "go"]', "", "transitions.go has no move for the symbol 'y'"),
        ('y = ["x", "L", "go"]', 'y = ["x", "l", "go"]', '"L" or "R"'),
        ('y = ["x", "L", "go"]', 'y = ["x", "L", "og"]', "transitions.go.y: 'og'"),
        ('y = ["x", "L", "go"]', 'y = "xLgo"', "transitions.go.y must be"),
        ('y = ["x", "L", "go"]', 'y = [1, "L", "go"]', "transitions.go.y must be"),
        ('y = ["x", "L", "go"]', 'y = ["x", "L", "go"]\nz = ["x", "L", "go"]', "'z'"),
        ("[transitions.go]", "[transitions.og]", "unknown name in transitions: 'og'"),
    ],
)
def test_what_is_no_machine_says_what_is_wrong(old, new, words):
    assert old in GOOD
    with pytest.raises(MachineError, match=words):
        of(GOOD.replace(old, new))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"states = [", b"a = 1\na = 2"])
def test_a_file_that_is_not_toml(tmp_path, content):
    path = tmp_path / "m.toml"
    path.write_bytes(content)
    with pytest.raises(MachineError, match="is not TOML"):
        read_machine(path)
    with pytest.raises(MachineError, match="Is a directory"):
        read_machine(tmp_path)
    with pytest.raises(MachineError, match="transitions must hold a table per state"):
        of('states = ["a"]\nsymbols = ["b"]\ntransitions = 3')


@pytest.mark.parametrize("number", ["1" * 5000, "0x" + "f" * 5000])
def test_a_number_of_too_many_digits_names_the_file(tmp_path, number):
    path = tmp_path / "m.toml"
    path.write_text(GOOD.replace('["go", "stop"]', number, 1))
    with pytest.raises(MachineError, match=r"m\.toml: a number has too many digits"):
        read_machine(path)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert read_machine(path) == of(GOOD)


def test_names_are_no_marks():
    assert not {*random_machine(0).symbols, *random_machine(0).states} & {*MARKS}
