"""Turing Programs: every step's arithmetic is read back from its text."""

import re
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import tasks
from harness.settings.protocol import load_protocol, resolve
from harness.tasks.base import TaskError
from harness.tasks.formats import FORMATS
from harness.tasks.testing import check_task
from harness.training.trainer import build
from harness.turing.machine import random_machine
from pezoo.spec import parse

ARITHMETIC = ["turing_addition", "turing_multiplication_1", "turing_multiplication_3"]
SEEDS = st.integers(0, 2**32 - 1)


def answer(name, prompt):
    task = tasks.make(name)
    return task.vocab.decode(task.solve(task.vocab.encode(prompt).tolist()))


def texts(task, batch):
    """Prompts and targets as texts."""
    both = zip(batch.prompt, batch.target, strict=True)
    return [(task.vocab.decode(prompt), task.vocab.decode(target)) for prompt, target in both]


def sampled(name, seed, length, batch=8):
    task = tasks.make(name)
    return texts(task, task.sample(torch.Generator().manual_seed(seed), batch, length))


@settings(max_examples=25)
@given(seed=SEEDS, length=st.integers(2, 20))
def test_every_step_of_an_addition_adds(seed, length):
    for prompt, target in sampled("turing_addition", seed, length):
        left = prompt.strip("$|").split("+")
        *steps, total = target.rstrip(".").split("|")
        carry, done = 0, ""
        for step in steps:
            a, b, new, so_far = re.fullmatch(r"(\d*\D)\+(\d*\D)\((\d),(\d+)\)", step).groups()
            read = [side[-1:] or "0" for side in left]
            heads = [
                "abcdefghij"[int(d)] if side else "^" for d, side in zip(read, left, strict=True)
            ]
            left = [side[:-1] for side in left]
            assert [a, b] == [side + head for side, head in zip(left, heads, strict=True)]
            assert so_far[1:] == done
            assert int(read[0]) + int(read[1]) + carry == 10 * int(new) + int(so_far[0])
            carry, done = int(new), so_far
        assert (left, carry, done) == (["", ""], 0, total)
        assert int(total) == sum(map(int, prompt.strip("$|").split("+")))


@pytest.mark.parametrize("k", [1, 3])
@settings(max_examples=15)
@given(seed=SEEDS, length=st.integers(2, 20))
def test_every_step_of_a_multiplication_multiplies(k, seed, length):
    form = re.compile(rf"(\d*)(\D)\*(\d{{{k}}})\((\d{{{k + 1}}})~(\d{{{k}}}),(\d+)\)")
    for prompt, target in sampled(f"turing_multiplication_{k}", seed, length):
        a, b = left, _ = prompt.strip("$|").split("*")
        *steps, total = target.rstrip(".").split("|")
        carry, done = 0, ""
        for step in steps:
            rest, head, other, times, new, so_far = form.fullmatch(step).groups()
            digit = int(left[-1:] or 0)
            assert head == ("abcdefghij"[digit] if left else "^")
            assert (rest, other, int(times)) == (left[:-1], b, digit * int(b))
            assert so_far[1:] == done
            assert int(times) + carry == 10 * int(new) + int(so_far[0])
            left, carry, done = rest, int(new), so_far
        assert (left, carry, done) == ("", 0, total)
        assert int(total) == int(a) * int(b)


@pytest.mark.parametrize(("name", "form"), [*product(ARITHMETIC, FORMATS[1:])])
def test_formats_keep_the_contract(name, form):
    check_task(tasks.make(f"{name}(format={form})"), lengths=(2, 3, 7))


@pytest.mark.parametrize("name", ARITHMETIC)
@settings(max_examples=10)
@given(seed=SEEDS, length=st.integers(2, 20))
def test_hints_are_of_places(name, seed, length):
    sign = "+" if name == "turing_addition" else "*"
    for prompt, target in sampled(f"{name}(format=hints)", seed, length):
        numbers = [*prompt.strip("$|").split(sign), target.rstrip(".")]
        ends = [re.findall(r"<(\d+)>\d", number) for number in numbers]
        assert len({hints[-1] for hints in ends}) == 1  # the last digits are of one place
        assert all([*map(int, own)] == [*range(int(own[0]), int(own[-1]) + 1)] for own in ends)


def test_all_hints_are_seen_in_training():
    task = tasks.make("turing_addition(format=hints)")
    made = task.sample(torch.Generator().manual_seed(0), 4000, 3)
    hints = {
        int(hint) for _, target in texts(task, made) for hint in re.findall(r"<(\d+)>", target)
    }
    assert hints >= {*range(1, 128)}
    with pytest.raises(TaskError, match="nearest: 127"):
        task.sample(torch.Generator(), 1, 128)


def test_operands_are_drawn_as_the_paper_draws_them():
    """Of a length n, all pairs of which the longer one has n digits, from 2 on."""
    task, n, batch = tasks.make("turing_addition"), 4, 5000
    made = task.sample(torch.Generator().manual_seed(0), batch, n)
    sizes = [tuple(map(len, prompt.strip("$|").split("+"))) for prompt, _ in texts(task, made)]
    share = {pair: sizes.count(pair) / batch for pair in set(sizes)}
    expected = {pair: 1 / 5 for k in (2, 3) for pair in ((k, n), (n, k))} | {(n, n): 1 / 5}
    assert share == pytest.approx(expected, abs=0.02)
    assert task.share(n) == len(expected)
    assert [task.share(k) for k in (2, 3, 4, 5)] == [1, 3, 5, 7]  # of 4 x 4 pairs


def test_further_test_sets_have_these_lengths():
    task = tasks.make("turing_addition")
    for name, expected in (("n+n", (7, 7)), ("12+n", (12, 7)), ("3+n", (3, 7))):
        made = task.test_set(name, torch.Generator().manual_seed(0), 9, 7)
        for prompt, target in texts(task, made):
            a, b = prompt.strip("$|").split("+")
            assert (len(a), len(b)) == expected
            assert answer("turing_addition", prompt) == target
    for name in ("n", "n+2", "1+n", "0+n", "x+n"):
        with pytest.raises(TaskError, match="no test set"):
            task.check_test_set(name)
    with pytest.raises(TaskError, match="no test set"):
        tasks.make("copy").check_test_set("n+n")


def test_an_unknown_format():
    with pytest.raises(ValueError, match="reversed"):
        tasks.make("turing_addition(format=reverse)")


@settings(max_examples=20)
@given(seed=SEEDS, length=st.integers(1, 12))
def test_every_step_of_gradient_descent_descends(seed, length):
    def levels(words):
        return [(int(word[1:]) - 100) / 100 for word in words]

    for prompt, target in sampled("turing_sgd", seed, length, batch=3):
        data = prompt.strip("$| ").split("d ")[1:]
        before = [0.0, 0.0]
        for line in target.removesuffix(" |").split(" | "):
            text, _, rest = line.partition(" yp ")
            assert [row.strip() for row in text.split("d ")[1:]] == [row.strip() for row in data]
            x1, x2, y = levels(data.pop().replace(",", "").split())
            predicted, _, g1, g2, _, w1, w2 = rest.split()
            (y_hat,), moves, weights = levels([predicted]), levels([g1, g2]), levels([w1, w2])
            far = 0.99 in map(abs, (y_hat, *moves, *weights)) or 1.0 in map(abs, (y_hat, *weights))
            for x, move, old, new in zip((x1, x2), moves, before, weights, strict=True):
                assert far or abs((y_hat - y) * x - move) <= 0.0101 * (1 + abs(x))
                assert far or abs(old - move - new) <= 0.0151
            assert far or abs(before[0] * x1 + before[1] * x2 - y_hat) <= 0.0151
            before = weights
        assert not data


@pytest.mark.parametrize(
    ("ending", "right"),
    [
        ("cur a80 a86 | E _ _", True),
        ("cur a78 a88 | E", True),
        ("cur a80 a86 E", False),
        ("cur a77 a86 | E", False),
        ("cur a80 a89 | E", False),
        ("cur a80 | E", False),
        ("cur a80 a86 a86 | E", False),
        ("yp a80 a86 | E", False),
        ("cur a80 a86 _ | E", False),  # padding inside
        ("cur a80 a86 |", False),  # no EOS
    ],
)
def test_weights_count_as_right_within_two_levels(ending, right):
    task = tasks.make("turing_sgd")
    index = {s: i for i, s in enumerate(task.vocab.symbols)}
    index |= {"E": task.vocab.eos, "_": task.vocab.pad}
    true = "_ _ d a179 a166 , a76 yp a100 g a119 a116 cur a80 a86 | E"
    rows = [[index[word] for word in text.split()] for text in (f"_ d a1 , | {ending}", true)]
    assert task.right(torch.tensor(rows[:1]), torch.tensor(rows[1:])).tolist() == [right]


INCREMENT = """
states = ["carry", "done"]
symbols = ["0", "1", "_"]
blank = "_"
start = "carry"
final = ["done"]
max_steps = [1, 1]

[transitions.carry]
0 = ["1", "R", "done"]
1 = ["0", "R", "carry"]
_ = ["1", "R", "done"]
"""


@pytest.fixture
def increment(tmp_path, monkeypatch):
    """A file's machine: adds one to a binary number, least significant digit first."""
    (tmp_path / "mine.toml").write_text(INCREMENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.toml"


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("form", FORMATS[:2])
def test_a_machine_of_a_file_keeps_the_contract(increment, steps, form):
    check_task(tasks.make(f"turing_machine(file=mine.toml,steps={steps},format={form})"))


@settings(max_examples=40)
@given(number=st.integers(0, 50), seed=SEEDS, length=st.integers(2, 20))
def test_every_step_of_a_machine_follows_its_table(number, seed, length):
    """By the text alone: one cell is written, the head moves by one and stops on the left."""
    machine, state = random_machine(number), lambda word: int(word.removeprefix("s")) - 1
    for prompt, target in sampled(f"turing_machine(machine={number},steps=3)", seed, length, 4):
        tapes = f"{prompt.strip('$| ')} | {target.strip(' .')}".split(" | ")
        assert len(tapes) == 4
        *cells, _, at = tapes[0].split()
        for step in tapes[1:]:
            words, after = (part.split() for part in step.strip("( ").split(" ) "))
            (head,) = (i for i, cell in enumerate(cells) if cell.startswith("b"))
            move = machine.transitions[state(at), int(cells[head][1:]) - 1]
            assert words[:2] == [f"s{move.state + 1}", f"a{move.symbol + 1}"]
            assert words[2] == {-1: "L", 1: "R"}[move.direction]
            cells[head] = words[1]
            head = max(0, head + move.direction)
            cells += [f"a{machine.blank + 1}"] * (head == len(cells))
            cells[head] = cells[head].replace("a", "b")
            assert after == [*cells, "~", words[0]]
            at = words[0]


def test_the_increment_machine_increments(increment):
    task = tasks.make("turing_machine(file=mine.toml,steps=0)")
    made = task.sample(torch.Generator().manual_seed(0), 50, 6)
    for prompt, target in texts(task, made):
        asked = prompt.strip("$ |").partition(" ~")[0]
        last = target.removesuffix(" .").rpartition("|")[2].partition(")")[2].partition(" ~")[0]
        before, after = (re.sub(r"[\[\] _]", "", text)[::-1] for text in (asked, last))
        assert int(after, 2) == int(before, 2) + 1


def test_another_machine_in_the_file_is_another_task(increment):
    one = tasks.make("turing_machine(file=mine.toml)")
    assert one.version == tasks.make("turing_machine(file=mine.toml)").version > 1_000_000
    increment.write_text(INCREMENT.replace('0 = ["1", "R"', '0 = ["0", "R"'))
    assert tasks.make("turing_machine(file=mine.toml)").version != one.version


def test_a_run_of_another_machine_is_not_gone_on_with(increment):
    task = "turing_machine(file=mine.toml)"
    config = resolve(load_protocol("quick"), task, parse("nope"), 0, "cpu", "auto")
    build(config)
    increment.write_text(INCREMENT.replace('0 = ["1", "R"', '0 = ["0", "R"'))
    with pytest.raises(ValueError, match="has changed"):
        build(config)


@pytest.mark.parametrize(
    ("old", "new", "options", "words"),
    [
        ("", "", "machine=-1", "machine must be"),
        ("", "", "steps=101", "steps must be"),
        ("", "", "steps=0", "final state"),
        ("", "", "format=hints", "format"),
        ("", "", "file=none.toml", "none.toml: No such file"),
        ("", "", "file=mine.toml,machine=1", "leave out machine=1"),
        ("", "", "file=", "was empty"),
        ('start = "carry"', 'start = "done"', "file=mine.toml,steps=0", "not final"),
        ("[1, 1]", "[10000, 10000, 10000, 10000]", "file=mine.toml,steps=0", "max_steps"),
    ],
)
def test_wrong_options_of_a_machine(increment, old, new, options, words):
    increment.write_text(INCREMENT.replace(old, new))
    with pytest.raises(ValueError, match=words):
        tasks.make(f"turing_machine({options})")


@pytest.mark.parametrize(
    ("old", "new"),
    [('start = "carry"', 'start = "done"'), ("[1, 1]", "[10000, 10000, 10000, 10000]")],
)
def test_single_steps_need_no_end(increment, old, new):
    increment.write_text(INCREMENT.replace(old, new))
    assert tasks.make("turing_machine(file=mine.toml)").lengths(99_999, 100_000)


def test_a_run_that_does_not_end_is_an_error(increment):
    increment.write_text(INCREMENT.replace('1 = ["0", "R", "carry"]', '1 = ["1", "L", "carry"]'))
    task = tasks.make("turing_machine(file=mine.toml,steps=0)")
    with pytest.raises(TaskError, match="has not halted"):
        task.sample(torch.Generator().manual_seed(0), 50, 5)
    with pytest.raises(TaskError, match="has not halted"):
        task.solve(task.vocab.encode("$ [1] 0 ~ carry |").tolist())
