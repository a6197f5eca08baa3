"""addition and multiplication by hand."""

import pytest
import torch

from harness import tasks


def answer(name, prompt):
    task = tasks.make(name)
    return task.vocab.decode(task.solve(task.vocab.encode(prompt).tolist()))


def bare_text(task, row):
    return task.vocab.decode(row.tolist())


@pytest.mark.parametrize(
    ("name", "prompt", "expected"),
    [
        ("addition", "829+03=", "8008,2305,9009->859."),
        ("addition", "03+829=", "0808,3205,0909->859."),
        ("addition", "1+2=", "1203->3."),
        ("addition", "9+9=", "9918->81."),  # a final carry: a digit, no step
        ("addition", "999+1=", "9110,9010,9010->0001."),  # a carry through the shorter's padding
        ("addition", "00+0=", "0000,0000->00."),
        ("multiplication", "3x7=", "3x[7*(7->1)]"),
        ("multiplication", "05x20=", "05x[2*(2->1)(0->0)+0*(0->1)]"),
        ("multiplication", "123x4=", "123x[4*(4->1)]"),
        (
            "multiplication",
            "675x1259=",
            "675x[1*(1->1)(2->0)(5->0)(9->0)+2*(2->1)(5->0)(9->0)+5*(5->1)(9->0)+9*(9->1)]",
        ),
    ],
)
def test_by_hand(name, prompt, expected):
    assert answer(name, prompt) == expected


def test_sums_are_right_as_numbers():
    task = tasks.make("addition")
    made = task.sample(torch.Generator().manual_seed(0), 500, 30)
    for prompt, target in zip(made.prompt, made.target, strict=True):
        a, b = bare_text(task, prompt).rstrip("=").split("+")
        total = bare_text(task, target).split("->")[1].rstrip(".")
        assert int(total[::-1]) == int(a[::-1]) + int(b[::-1])


def test_terms_add_up_to_the_multiplier():
    task = tasks.make("multiplication")
    made = task.sample(torch.Generator().manual_seed(0), 200, 9)
    for prompt, target in zip(made.prompt, made.target, strict=True):
        a, b = bare_text(task, prompt).rstrip("=").split("x")
        repeated, terms = bare_text(task, target).rstrip("]").split("x[")
        factors = [term[0] + "0" * term.count("->0") for term in terms.split("+")]
        assert repeated == a
        assert sum(map(int, factors)) == int(b)


@pytest.mark.parametrize(("name", "sign"), [("addition", "+"), ("multiplication", "x")])
def test_the_shorter_operand_is_uniform_and_on_either_side(name, sign):
    task, n, batch = tasks.make(name), 4, 4000
    made = task.sample(torch.Generator().manual_seed(0), batch, n)
    sizes = [tuple(map(len, bare_text(task, p).strip("$|=").split(sign))) for p in made.prompt]
    share = {pair: sizes.count(pair) / batch for pair in set(sizes)}
    expected = {pair: 1 / (2 * n) for k in range(1, n) for pair in ((k, n), (n, k))}
    assert share == pytest.approx(expected | {(n, n): 1 / n}, abs=0.03)


def test_chance_of_addition_is_the_share_of_zeros():
    task = tasks.make("addition")
    target = task.sample(torch.Generator().manual_seed(0), 2000, 200).target
    digits = target[target < 10]
    share = torch.bincount(digits, minlength=10).double() / len(digits)
    assert int(share.argmax()) == 0
    assert float(share[0]) == pytest.approx(task.chance, abs=0.01)
