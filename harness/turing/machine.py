"""A Turing machine whose tape has a left end: what it consists of, and where it comes from."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from pezoo.spec import unknown

STATES, SYMBOLS = 5, 15  # of the paper's random machines
MOST = 200  # states, and symbols, of a file's machine
MARKS = ("$", "~", "|", "(", ")", ".", "L", "R")  # what texts use beside names
DIRECTIONS = {"L": -1, "R": 1}
KEYS = ("states", "symbols", "blank", "start", "final", "inputs", "max_steps", "transitions")


class MachineError(ValueError):
    """A machine that is none, with what was expected and what was given."""


@dataclass(frozen=True)
class Move:
    """Write `symbol`, step by `direction` (-1 left, 1 right), go on in `state`."""

    symbol: int
    direction: int
    state: int


@dataclass(frozen=True)
class Machine:
    """States and symbols by number; names are for texts.

    `heads` are the names of the symbols while the head is on them. `transitions` has a move for
    every symbol in every state that is not in `final`. `blank` fills the tape right of the input.
    `inputs` are the symbols that inputs are drawn from. A run on n symbols takes at most c0 + c1 n
    + c2 n^2 + ... steps, by `max_steps` (c0, c1, c2, ...).
    """

    states: tuple[str, ...]
    symbols: tuple[str, ...]
    heads: tuple[str, ...]
    transitions: dict[tuple[int, int], Move]
    start: int = 0
    final: frozenset[int] = frozenset()
    blank: int = 0
    inputs: tuple[int, ...] = ()
    max_steps: tuple[int, ...] = (10, 4, 1)

    def limit(self, length: int) -> int:
        """The most steps that a run on an input of that length takes."""
        return sum(factor * length**power for power, factor in enumerate(self.max_steps))

    @property
    def checksum(self) -> int:
        """A number below 1,000,000 that changes with the machine."""
        moves = sorted((key, vars(move)) for key, move in self.transitions.items())
        rest = {k: v for k, v in vars(self).items() if k not in ("transitions", "final")}
        text = repr((sorted(rest.items()), sorted(self.final), moves))
        return int(sha256(text.encode()).hexdigest()[:12], 16) % 1_000_000


def random_machine(seed: int, states: int = STATES, symbols: int = SYMBOLS) -> Machine:
    """Symbol, direction and state drawn uniformly for every state and symbol; it never halts.

    Symbols are a1, a2, ..., under the head b1, b2, ...; states are s1, s2, ... (Hou et al. 2024,
    Section 5.3 and Appendix F). The blank is a1.
    """
    draw = random.Random(f"turing machine {seed}, {states} states, {symbols} symbols")
    moves = {
        key: Move(draw.randrange(symbols), draw.choice((-1, 1)), draw.randrange(states))
        for key in product(range(states), range(symbols))
    }
    return Machine(
        states=tuple(f"s{i + 1}" for i in range(states)),
        symbols=tuple(f"a{i + 1}" for i in range(symbols)),
        heads=tuple(f"b{i + 1}" for i in range(symbols)),
        transitions=moves,
        inputs=tuple(range(symbols)),
    )


def read_machine(path: Path) -> Machine:
    """The machine in a TOML file; `docs/turing-programs.md` shows one.

    Errors: MachineError for a file that cannot be read, and for what is no machine.
    """
    try:
        return machine_of(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise MachineError(f"machine {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MachineError(f"machine {path} is not TOML: {error}") from error
    except MachineError as error:
        raise MachineError(f"machine {path}: {error}") from error
    except ValueError as error:  # Python reads and prints no number of thousands of digits
        raise MachineError(f"machine {path}: a number has too many digits") from error


def machine_of(raw: dict[str, Any]) -> Machine:
    """The machine that a file's content describes. Errors: MachineError."""
    if strange := sorted(raw.keys() - set(KEYS)):
        raise MachineError(unknown("key", strange[0], KEYS))
    if missing := [k for k in ("states", "symbols", "transitions") if k not in raw]:
        raise MachineError(f"{missing[0]} is missing; it needs states, symbols and transitions")
    states, symbols = _names(raw, "states"), _names(raw, "symbols")
    names = (*states, *symbols, *(f"[{symbol}]" for symbol in symbols))
    if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise MachineError(f"{twice!r} is a name twice; states and symbols need names of their own")
    final = frozenset(_index("final", name, states) for name in _names(raw, "final", least=0))
    blank = _index("blank", raw.get("blank", symbols[-1]), symbols)
    default = [symbol for i, symbol in enumerate(symbols) if i != blank] or [*symbols]
    inputs = _names({"inputs": default} | raw, "inputs")
    return Machine(
        states=states,
        symbols=symbols,
        heads=tuple(f"[{symbol}]" for symbol in symbols),
        transitions=dict(_moves(raw["transitions"], states, symbols, final)),
        start=_index("start", raw.get("start", states[0]), states),
        final=final,
        blank=blank,
        inputs=tuple(_index("inputs", name, symbols) for name in inputs),
        max_steps=_max_steps(raw.get("max_steps", [10, 4, 1])),
    )


def _names(raw: dict[str, Any], key: str, least: int = 1) -> tuple[str, ...]:
    """Different names without blanks that no text uses otherwise."""
    names = raw.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise MachineError(f'{key} must be a list of names, such as ["0", "1"], was {names!r}')
    if not least <= len(names) <= MOST:
        raise MachineError(f"{key} must be {least} to {MOST} names, was {len(names)}")
    for i, name in enumerate(names):
        if not name or len(name) > 20 or not name.isprintable() or " " in name or name in MARKS:
            raise MachineError(
                f"{key} has {name!r}: a name has 1 to 20 visible characters without blanks and is "
                f"none of {' '.join(MARKS)}"
            )
        if name in names[:i]:
            raise MachineError(f"{key} has {name!r} twice")
    return tuple(names)


def _index(key: str, name: Any, names: tuple[str, ...]) -> int:
    if not isinstance(name, str):
        raise MachineError(f'{key} must be a text such as "{names[0]}", was {name!r}')
    if name not in names:
        raise MachineError(unknown(f"name in {key}:", str(name), names))
    return names.index(name)


def _max_steps(raw: Any) -> tuple[int, ...]:
    fits = isinstance(raw, list) and 1 <= len(raw) <= 4
    if not fits or not all(type(one) is int and 0 <= one <= 10_000 for one in raw) or not any(raw):
        raise MachineError(
            f"max_steps must be 1 to 4 whole numbers from 0 to 10,000, [c0, c1, c2] for c0 + c1 n "
            f"+ c2 n^2 steps on n symbols, was {raw!r}"
        )
    return tuple(raw)


def _moves(
    raw: Any, states: tuple[str, ...], symbols: tuple[str, ...], final: frozenset[int]
) -> Iterator[tuple[tuple[int, int], Move]]:
    """One for each symbol in each state that is not final."""
    if not isinstance(raw, dict) or not all(isinstance(table, dict) for table in raw.values()):
        raise MachineError("transitions must hold a table per state: [transitions.STATE]")
    for state in raw:
        _check_dots(state, raw[state], states)
        if _index("transitions", state, states) in final:
            raise MachineError(f"transitions.{state}: {state} is final and has none")
    for number, state in enumerate(states):
        if number in final:
            continue
        table = raw.get(state, {})
        for symbol in table:
            _index(f"transitions.{state}", symbol, symbols)
        for read, symbol in enumerate(symbols):
            if symbol not in table:
                raise MachineError(f"transitions.{state} has no move for the symbol {symbol!r}")
            yield (
                (number, read),
                _move(f"transitions.{state}.{symbol}", table[symbol], states, symbols),
            )


def _check_dots(state: str, table: dict[str, Any], states: tuple[str, ...]) -> None:
    """TOML takes a dot in a name without quotes for a table in a table."""
    name, inner = next(((k, v) for k, v in table.items() if isinstance(v, dict)), ("", {}))
    if inner and state in states:
        name = f"{name}.{next(iter(inner))}"
        raise MachineError(
            f'transitions.{state}.{name}: a name with a dot needs quotes, "{name}" = ...'
        )
    if inner:
        name = f"{state}.{name}"
        raise MachineError(
            f'transitions.{name}: a name with a dot needs quotes, [transitions."{name}"]'
        )


def _move(where: str, raw: Any, states: tuple[str, ...], symbols: tuple[str, ...]) -> Move:
    texts = isinstance(raw, list) and all(isinstance(one, str) for one in raw)
    if not texts or len(raw) != 3 or raw[1] not in ("L", "R"):
        raise MachineError(
            f'{where} must be [symbol to write, "L" or "R", next state], was {raw!r}'
        )
    return Move(_index(where, raw[0], symbols), DIRECTIONS[raw[1]], _index(where, raw[2], states))
