"""Turing Programs: every step's arithmetic is read back from its text."""

import re
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import tasks
from harness.tasks.base import TaskError
from harness.tasks.formats import FORMATS
from harness.tasks.testing import check_task

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


@pytest.mark.parametrize(
    ("name", "prompt", "expected"),
    [
        ("turing_addition", "$1+2|", "b+c(0,3)|3."),
        ("turing_addition", "$9+9|", "j+j(1,8)|^+^(0,18)|18."),  # a final carry: a step
        ("turing_addition", "$6+97|", "g+9h(1,3)|^+j(1,03)|^+^(0,103)|103."),
        ("turing_addition", "$06+0|", "0g+a(0,6)|a+^(0,06)|06."),
        (
            "turing_addition",
            "$4324+139|",
            "432e+13j(1,3)|43c+1d(0,63)|4d+b(0,463)|e+^(0,4463)|4463.",
        ),
        ("turing_addition(format=plain)", "$576+361|", "937."),
        ("turing_addition(format=plain)", "$06+0|", "06."),
        ("turing_addition(format=reversed)", "$675+163|", "739."),  # Appendix B
        ("turing_addition(format=spaces)", "$5 76+36 1|", "937."),
        ("turing_addition(format=reversed+spaces)", "$6 75+16 3|", "739."),
        (
            "turing_addition(format=hints)",
            "$<1>5<2>7<3>6+<1>3<2>6<3>1|",
            "<1>9<2>3<3>7.",
        ),
        ("turing_addition(format=hints)", "$<7>9<8>9+<8>1|", "<6>1<7>0<8>0."),
        (
            "turing_addition(format=reversed+hints)",
            "$<1>6<2>7<3>5+<1>1<2>6<3>3|",
            "<1>7<2>3<3>9.",
        ),
        (
            "turing_multiplication_3",
            "$4324*135|",
            "432e*135(0540~054,0)|43c*135(0270~032,40)|4d*135(0405~043,740)"
            "|e*135(0540~058,3740)|^*135(0000~005,83740)|^*135(0000~000,583740)|583740.",
        ),
        ("turing_multiplication_1", "$99*9|", "9j*9(81~8,1)|j*9(81~8,91)|^*9(00~0,891)|891."),
        ("turing_multiplication_1", "$10*0|", "1a*0(00~0,0)|b*0(00~0,00)|00."),
        ("turing_multiplication_1(format=plain)", "$10*0|", "00."),
        ("turing_multiplication_3(format=reversed)", "$4234*531|", "047385."),
    ],
)
def test_by_hand(name, prompt, expected):
    assert answer(name, prompt) == expected


@settings(max_examples=25, deadline=None)
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
@settings(max_examples=15, deadline=None)
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
@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, length=st.integers(2, 20))
def test_hints_are_of_places_and_spaces_between_digits(name, seed, length):
    sign = "+" if name == "turing_addition" else "*"
    for prompt, target in sampled(f"{name}(format=hints)", seed, length):
        numbers = [*prompt.strip("$|").split(sign), target.rstrip(".")]
        ends = [re.findall(r"<(\d+)>\d", number) for number in numbers]
        assert len({hints[-1] for hints in ends}) == 1  # the last digits are of one place
        assert all([*map(int, own)] == [*range(int(own[0]), int(own[-1]) + 1)] for own in ends)
    for prompt, target in sampled(f"{name}(format=spaces)", seed, length):
        assert " " not in target
        assert not re.search(r"  |[$+*] | [+*|]", prompt)


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
        with pytest.raises(TaskError, match="expected n\\+n, or 2\\+n"):
            task.check_test_set(name)
    with pytest.raises(TaskError, match="no test set 'n\\+n'"):
        tasks.make("copy").check_test_set("n+n")


def test_an_unknown_format():
    with pytest.raises(ValueError, match="did you mean reversed"):
        tasks.make("turing_addition(format=reverse)")
