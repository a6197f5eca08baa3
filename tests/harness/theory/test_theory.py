"""Computational representations, canonicity, complexity, characterising relations, Theorem 3."""

from functools import partial
from itertools import product

import by_hand
import pytest
import torch

from harness.tasks import make
from harness.tasks.base import TaskError
from harness.tasks.digits import same
from harness.theory.characterise import NotLearned, reconstruct, violation
from harness.theory.mapping import complexity, conflict
from harness.theory.relation import Relation
from harness.theory.representation import Computation, Step, operators

ALIGNED = ["copy(aligned=20)", "reverse(aligned=20)", "parity(aligned=20)"]
ALIGNED += ["addition(aligned=21,cot=false)", "multiplication_1n(aligned=21)"]
ALIGNED += ["division_n1(aligned=21)"]
HINTED = ["copy", "reverse", "odds_first", "parity", "addition(cot=false)", "multiplication_1n"]
HINTED += ["division_n1"]
SUMS = ["addition(cot=false)", "addition(aligned=21,cot=false)"]
SELECT = ["select_first", "select_middle", "select_last"]  # canonical at any scale


def prf_at(task, n, hint=True):
    """The PRF at scale n over all tokens of an instance."""
    size = sum(task.max_tokens(n)) + 1
    i, j = torch.arange(size)[:, None], torch.arange(size)[None]
    return task.prf(i, j, torch.tensor(n) if hint else None)


def representation(task, top=20):
    return {n: task.computation(n) for n in range(1, top + 1)}


def sampled(task, scales, batch=400, seed=0):
    """Inputs with signs, and outputs."""
    for n in scales:
        made = task.sample(torch.Generator().manual_seed(seed + n), batch, n)
        yield n, made.prompt, made.target


def all_bits(function, scales):
    """Every binary instance of a mapping."""
    for n in scales:
        x = list(product((0, 1), repeat=n))
        yield n, torch.tensor(x), torch.tensor([function(list(one)) for one in x])


@pytest.mark.parametrize(("name", "counts"), [("copy", [1, 1, 1]), ("parity", [1, 2, 2])])
def test_operators_of_all_scales_are_counted_once(name, counts):
    """Parity is Example 1: y_1 = x_1, then y_t = x_t xor y_(t-1)."""
    assert [len(operators(representation(make(name), top))) for top in (1, 2, 5)] == counts


@pytest.mark.parametrize("name", ALIGNED + HINTED + SELECT)
def test_a_tasks_computation_computes_its_answer(name):
    task = make(name)
    for n, prompt, target in sampled(task, (1, 2, 3, 7, 20), batch=30):
        computation = task.computation(n)
        for one, answer in zip(prompt.tolist(), target.tolist(), strict=True):
            assert computation.run(one) == answer


def test_steps_must_follow_the_input_and_read_what_is_there():
    with pytest.raises(ValueError, match="parents"):
        Step(3, same, (3,))
    with pytest.raises(ValueError, match="3"):
        Computation(2, (Step(4, same, (1,)),))
    with pytest.raises(ValueError, match="2"):
        Computation(2, (Step(3, same, (1,)),)).run([1])


def test_example_7_copying_is_not_canonical():
    found = conflict(all_bits(lambda x: x, (2, 3)))
    assert found is not None
    assert (found.one, found.other) == (2, 3)
    u, v, w = found.prefix
    assert u == w  # written: "10" then its copy "1", or "101" alone
    assert (found.writes, found.other_writes) == (v, u)


def test_the_middle_of_one_scale_is_canonical():
    assert conflict(all_bits(lambda x: x[:1], (1, 2, 3))) is None


def running_parity(x):
    return [sum(x[: t + 1]) % 2 for t in range(len(x))]


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (lambda x: x, [1, 1, 1]),
        (lambda x: x[::-1], [1, 1, 1]),
        (running_parity, [1, 2, 2]),
        (lambda x: [1 - x[0], *x[1:]], [1, 2, 2]),
    ],
    ids=["copy", "reverse", "parity", "first negated"],
)
def test_complexity_by_search(function, want):
    got = [complexity(all_bits(function, range(1, n + 1)), arity=2) for n in (1, 2, 3)]
    assert got == want


def test_one_operator_of_three_inputs_does_not_make_parity_simpler():
    assert complexity(all_bits(running_parity, (1, 2, 3)), arity=3) == 2


def test_complexity_may_grow_with_scale():
    """A new function at every scale, as in Example 6: no operator serves two."""
    functions = {1: lambda x: x[0], 2: lambda x: x[0] & x[1], 3: lambda x: (x[0] ^ x[1]) | x[2]}
    found = [
        complexity(all_bits(lambda x: [functions[len(x)](x)], range(1, n + 1)), arity=3)
        for n in (1, 2, 3)
    ]
    assert found == [1, 1, 2]  # x and x = x: the second serves the first


def test_outputs_that_no_operator_of_an_arity_writes():
    assert complexity(all_bits(lambda x: [sum(x) % 2], (3,)), arity=2) is None


@pytest.mark.parametrize("name", ALIGNED + SELECT + HINTED)
def test_a_relation_characterises_its_task(name):
    task, hint = make(name), name in HINTED
    assert violation(representation(task), partial(prf_at, task, hint=hint)) is None
    if hint:
        with pytest.raises(TaskError, match="scale"):
            prf_at(task, 3, hint=False)


@pytest.mark.parametrize("name", ALIGNED + SELECT + HINTED)
def test_relations_are_those_written_by_hand(name):
    """Value by value: records of ideal and ideal_sh were made with these."""
    task = make(name)
    for n in (1, 2, 3, 7, 20, 2):
        size = sum(task.max_tokens(n)) + 1
        i, j = torch.arange(size)[:, None], torch.arange(size)[None]
        want = getattr(by_hand, task.name)(i, j, task.aligned or n)
        if n > 1 or name not in (SUMS[0], "multiplication_1n"):
            assert torch.equal(prf_at(task, n), want)
        if name in ALIGNED:
            assert torch.equal(prf_at(task, n, hint=False), want)


def test_one_call_serves_rows_of_several_scales_and_padding():
    task, n = make("parity"), torch.tensor([3, 1, 3])[:, None, None]
    pos = torch.tensor([[-1, *range(7)], [-1, -1, *range(6)], [*range(8)]])
    got = task.prf(pos[:, :, None], pos[:, None], n)
    for row in range(3):
        for a, i in enumerate(pos[row]):
            for b, j in enumerate(pos[row]):
                want = by_hand.parity(i, j, int(n[row])) * (min(i, j) >= 0)
                assert got[row, a, b] == want


def first_and_last(n):
    return Computation(n, (Step(n + 1, first, (1,)), Step(n + 2, last, (n, 1))))


def first(u):
    return u


def last(u, v):
    return u - v


def test_any_computation_has_a_relation_with_the_scale_and_a_canonical_one_without():
    """Theorems 3 and 4, of a task that says nothing but how it is computed."""
    scales = {n: first_and_last(n) for n in range(1, 21)}
    relation = Relation(first_and_last)

    def prf(n):
        i = torch.arange(n + 2)
        return relation(i[:, None], i[None], torch.tensor(n))

    assert violation(scales, prf) is None
    assert prf(4).unique().tolist() == [0, 1, 2, 3]
    assert Relation(first_and_last)(*map(torch.tensor, (20, 19, 20))) == 2  # whatever is first
    with pytest.raises(ValueError, match="scale"):
        relation(torch.tensor(9), torch.tensor(0), None)  # place 11: of 9 the last, of 10 the first
    with pytest.raises(ValueError, match="computation"):
        Relation(lambda n: None)(torch.tensor(9), torch.tensor(0), None)
    with pytest.raises(TaskError, match="computation"):
        make("bucket_sort").prf(*map(torch.tensor, (1, 0, 3)))


def test_operators_must_be_the_same_at_every_call():
    def fresh(n):
        return Computation(n, (Step(n + 1, lambda u: u, (1,)),))

    with pytest.raises(ValueError, match="same operators at every call"):
        Relation(fresh)(*map(torch.tensor, (9, 0, 10)))


def test_a_relation_that_takes_two_roles_for_one_is_not_consistent():
    task = make("parity(aligned=5)")

    def merged(n):
        return prf_at(task, n).clamp(max=2)

    found = violation(representation(task, 5), merged)
    assert found is not None
    assert found.condition == "consistency"


def test_distances_are_not_distinct_from_those_of_other_keys():
    task = make("copy(aligned=5)")
    size = sum(task.max_tokens(5)) + 1
    distance = torch.arange(size)[:, None] - torch.arange(size)
    found = violation(representation(task, 5), lambda n: distance)
    assert found is not None
    assert found.condition == "distinctness"


def simple(task, scales, batch, seed=0):
    """Examples whose digits are 0 to 3, so that few show every entry of an operator's table."""
    for n, prompt, _ in sampled(task, scales, batch, seed):
        prompt = torch.where(prompt < 10, prompt % 4, prompt)
        rows = [row for row in prompt.tolist() if task.name != "division_n1" or row[-2]]
        yield n, torch.tensor(rows), torch.tensor([task.solve(row) for row in rows])


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("copy(aligned=20)", 60), ("reverse(aligned=20)", 200), ("parity(aligned=20)", 60),
        ("copy", 60), ("parity", 60), ("multiplication_1n", 300), ("division_n1", 300),
        ("multiplication_1n(aligned=21)", 300), ("division_n1(aligned=21)", 300),
        *(pytest.param(name, 2000, marks=pytest.mark.slow) for name in SUMS),
    ],
)  # fmt: skip
def test_a_task_is_recovered_from_small_scales(name, batch):
    task = make(name)
    prf = partial(prf_at, task, hint=not task.aligned)
    learned = reconstruct(simple(task, range(1, 6), batch), prf)
    for n, prompt, target in simple(task, (6, 20), 10, seed=99):
        assert torch.equal(learned.answer(prompt, n, target.shape[1]), target)


def test_the_last_carry_of_an_aligned_sum_is_unknown_at_the_scale_of_alignment():
    """Below that scale its inputs are zeros: to test scale N, align to N + 1."""
    task = make("multiplication_1n(aligned=8)")
    learned = reconstruct(simple(task, range(1, 6), 300), partial(prf_at, task))
    (_, prompt, target), (_, longest, _) = simple(task, (7, 8), 10)
    assert torch.equal(learned.answer(prompt, 7, 9), target)
    with pytest.raises(NotLearned, match="inputs"):
        learned.answer(longest, 8, 9)


def recovers(instances, prf):
    """Return True if prf recovers the instances themselves."""
    try:
        learned = reconstruct(instances, prf)
        return all(torch.equal(learned.answer(x, n, y.shape[1]), y) for n, x, y in instances)
    except NotLearned:
        return False


def test_example_7_is_not_recovered_without_a_scale_hint():
    """Whatever phi(i, j): the two instances of the conflict have one prefix, so one answer."""
    task = make("copy(symbols=2)")
    instances = [(n, x, y) for n, x, y in all_bits(lambda x: x, (2, 3))]  # without "="
    for a, b, c in product((-1, 0, 1), (-1, 0, 1), (0, 1, 2)):

        def prf(n, a=a, b=b, c=c):
            i, j = torch.arange(8)[:, None], torch.arange(8)[None]
            return (a * i + b * j + c).clamp(min=0)

        assert not recovers(instances, prf)
    learned = reconstruct(sampled(task, (2, 3), 50), partial(prf_at, task))
    for n, prompt, target in sampled(task, (7,), batch=20):
        assert torch.equal(learned.answer(prompt, n, n), target)


def test_what_is_new_at_a_scale_is_said():
    task = make("copy")
    learned = reconstruct(sampled(task, (1, 2), 200), lambda n: torch.ones(9, 9).long() * n)
    with pytest.raises(NotLearned, match="length 3"):
        learned.answer(torch.zeros(1, 4, dtype=torch.long), 3, 1)
