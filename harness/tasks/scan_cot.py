"""Carry out SCAN commands, clause by clause."""

from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, TaskError, Vocab

_ACTIONS = {"walk": "I_WALK", "look": "I_LOOK", "run": "I_RUN", "jump": "I_JUMP", "turn": ""}
_TIMES = {"": 1, "twice": 2, "thrice": 3}


@dataclass(frozen=True)
class Command:
    """A SCAN command: its words, its actions, and the answer in chain-of-thought form."""

    words: str
    actions: str
    thought: str


class ScanCot(Task):
    """A SCAN command, then: written out -> each clause with its actions, in order of execution.

    jump left twice = jump left + jump left -> jump left : I_TURN_LEFT I_JUMP jump left :
        I_TURN_LEFT I_JUMP .
    run after walk = run after walk -> walk : I_WALK run : I_RUN .

    "twice" and "thrice" are written out with "+". "x after y" is executed y first. `example` is
    the paper's command, "walk around left thrice and look opposite right".

    Vocabulary: the 13 words of SCAN, its 6 actions, "=", "+", "->", ":" and "."; a space between
    symbols. Length n: the number of actions, 1 to 48; there is no command with 23, 29, 31, 34, 35,
    37..39 or 41..47. A sample is uniform over the commands with exactly n actions, of which there
    are 6 (n = 1) to 1,696 (n = 10). All 20,910 commands come from the grammar.
    Chance: over the answers to all commands the most frequent token is I_TURN_LEFT (and
    I_TURN_RIGHT, equally often): 0.095, by counting.

    Paper: PRISM, Table 4, on the data of SCAN (Lake and Baroni, 2018). Deviations: the print of
    the example is garbled (its first clause runs into the second and a fourth "walk around left"
    follows) and is mended here. The table says that all actions follow after "->"; in its example
    they stand behind their clauses, which is followed. The paper trains on one side of the
    official split and tests on all of the other; a protocol does so with train_lengths = [1, 22],
    draw = "instances" and the lengths above 22.
    """

    name = "scan_cot"
    summary = "SCAN commands, clause by clause"
    paper = "PRISM, Table 4"
    family = "rewriting"
    best_constant = (
        *((6, 0.24), (10, 0.22), (13, 0.32), (14, 0.27), (16, 0.37), (18, 0.27), (20, 0.33)),
        *((21, 0.51), (24, 0.46), (25, 0.31), (30, 0.3), (32, 0.49), (33, 0.42), (48, 0.53)),
    )
    example = (
        "walk around left thrice and look opposite right ="
        + " walk around left + walk around left + walk around left and look opposite right ->"
        + (" walk around left :" + " I_TURN_LEFT I_WALK" * 4) * 3
        + " look opposite right : I_TURN_RIGHT I_TURN_RIGHT I_LOOK ."
    )
    vocab = Vocab(
        (
            *("walk", "look", "run", "jump", "turn", "left", "right", "opposite", "around"),
            *("twice", "thrice", "and", "after", "=", "+", "->", ":", "."),
            *("I_TURN_LEFT", "I_TURN_RIGHT", "I_WALK", "I_LOOK", "I_RUN", "I_JUMP"),
        ),
        separator=" ",
    )
    chance = 0.095
    max_length = 48

    def lengths(self, low: int, high: int) -> list[int]:
        return [n for n in super().lengths(low, high) if n in _by_length()]

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        prompts, targets = _tables(length, generator.device)
        row = torch.randint(len(prompts), (batch,), generator=generator, device=prompts.device)
        return Batch(prompt=prompts[row], target=targets[row])

    def instances(self, length: int) -> Batch:
        self.check_length(length)
        return Batch(*_tables(length, torch.device("cpu")))

    def solve(self, prompt: list[int]) -> list[int]:
        words = [self.vocab.symbols[i] for i in prompt[:-1]]
        joint = next((w for w in words if w in ("and", "after")), None)
        if joint is None:
            written, order = _repeat(words), [_repeat(words)]
        else:
            at = words.index(joint)
            first, second = _repeat(words[:at]), _repeat(words[at + 1 :])
            written = [*first, joint, *second]
            order = [first, second] if joint == "and" else [second, first]
        answer = [*written, "->"]
        for clauses in order:
            for clause in " ".join(clauses).split(" + "):
                answer += [*clause.split(), ":", *_interpret(clause.split())]
        return [self.vocab.id(w) for w in [*answer, "."]]

    def measure(self, prompt: list[int]) -> int:
        first_action = self.vocab.id("I_TURN_LEFT")
        return sum(token >= first_action for token in self.solve(prompt))

    def max_tokens(self, length: int) -> tuple[int, int]:
        self.check_length(length)
        prompts, targets = _tables(length, torch.device("cpu"))
        return prompts.shape[1], targets.shape[1]


@cache
def commands() -> tuple[Command, ...]:
    """Return all 20,910 commands: a clause, perhaps twice or thrice, or two of these joined."""
    parts = [_part(clause, actions, times) for clause, actions in _clauses() for times in _TIMES]
    found = [Command(p.words, p.actions, f"{written} -> {p.thought} .") for written, p in parts]
    for (written_1, x), (written_2, y) in product(parts, repeat=2):
        for joint, (first, second) in (("and", (x, y)), ("after", (y, x))):
            found.append(
                Command(
                    words=f"{x.words} {joint} {y.words}",
                    actions=f"{first.actions} {second.actions}",
                    thought=f"{written_1} {joint} {written_2} -> "
                    f"{first.thought} {second.thought} .",
                )
            )
    return tuple(found)


def _clauses() -> list[tuple[str, str]]:
    """Return the 34 clauses without twice or thrice, each with its actions."""
    found = [(verb, act) for verb, act in _ACTIONS.items() if act]
    for (verb, act), side in product(_ACTIONS.items(), ("left", "right")):
        turn = f"I_TURN_{side.upper()}"
        once = f"{turn} {act}".strip()
        found.append((f"{verb} {side}", once))
        found.append((f"{verb} opposite {side}", f"{turn} {once}"))
        found.append((f"{verb} around {side}", " ".join([once] * 4)))
    return found


def _part(clause: str, actions: str, times: str) -> tuple[str, Command]:
    """Return one side of a command written out with "+", and that side with its actions."""
    n = _TIMES[times]
    side = Command(
        words=f"{clause} {times}".strip(),
        actions=" ".join([actions] * n),
        thought=" ".join([f"{clause} : {actions}"] * n),
    )
    return " + ".join([clause] * n), side


@cache
def _by_length() -> dict[int, list[Command]]:
    """Return the commands by their number of actions."""
    found: dict[int, list[Command]] = {}
    for c in commands():
        found.setdefault(len(c.actions.split()), []).append(c)
    return found


@cache
def _tables(length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return padded prompts (C, P) and targets (C, Q) of the C commands of a length."""
    vocab, index = ScanCot.vocab, {s: i for i, s in enumerate(ScanCot.vocab.symbols)}
    prompts = [[index[w] for w in f"{c.words} =".split()] for c in _by_length()[length]]
    targets = [[index[w] for w in c.thought.split()] for c in _by_length()[length]]
    p, q = max(map(len, prompts)), max(map(len, targets))
    left = [[vocab.pad] * (p - len(x)) + x for x in prompts]
    right = [x + [vocab.pad] * (q - len(x)) for x in targets]
    return torch.tensor(left, device=device), torch.tensor(right, device=device)


def _repeat(words: list[str]) -> list[str]:
    """Write out twice or thrice in one side of a command (for solve)."""
    if words[-1] == "twice":
        return [*words[:-1], "+", *words[:-1]]
    if words[-1] == "thrice":
        return [*words[:-1], "+", *words[:-1], "+", *words[:-1]]
    return words


def _interpret(clause: list[str]) -> list[str]:
    """Return the actions of one clause: a verb, perhaps a manner, perhaps a side (for solve)."""
    act = [] if clause[0] == "turn" else ["I_" + clause[0].upper()]
    match clause[1:]:
        case []:
            return act
        case ["opposite", side]:
            return ["I_TURN_" + side.upper()] * 2 + act
        case ["around", side]:
            return ["I_TURN_" + side.upper(), *act] * 4
        case [side]:
            return ["I_TURN_" + side.upper(), *act]
    raise TaskError(f"not a SCAN clause: {' '.join(clause)!r}")
