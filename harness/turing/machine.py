"""Turing machines whose tape has a left end: random machines, and machines from TOML files."""

import random
import tomllib
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from pezoo.spec import unknown

STATES, SYMBOLS = 5, 15  # of the random machines of the paper
MOST = 200  # states, and symbols, of a machine in a file
MOST_BYTES = 1_000_000  # of a file
MARKS = ("$", "~", "|", "(", ")", ".", "L", "R")  # reserved in texts
DIRECTIONS = {"L": -1, "R": 1}
KEYS = ("states", "symbols", "blank", "start", "final", "inputs", "max_steps", "transitions")


class MachineError(ValueError):
    """An invalid machine, or a run that cannot continue."""


@dataclass(frozen=True)
class Move:
    """Write `symbol`, move by `direction` (-1 left, 1 right), continue in `state`."""

    symbol: int
    direction: int
    state: int


@dataclass(frozen=True)
class Machine:
    """A Turing machine. States and symbols are numbers; their names are used in texts.

    `heads` are the names of symbols under the head. `transitions` has a move for every symbol in
    every state that is not `final`. `blank` fills the tape right of the input. Inputs are drawn
    from the symbols `inputs`. A run on n symbols takes at most c0 + c1 n + c2 n^2 + ... steps, with
    `max_steps` (c0, c1, c2, ...).
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
        """Return the largest number of steps of a run on an input of that length."""
        return sum(factor * length**power for power, factor in enumerate(self.max_steps))

    @property
    def checksum(self) -> int:
        """Return a number below 1,000,000 that identifies the machine."""
        moves = sorted((key, vars(move)) for key, move in self.transitions.items())
        rest = {k: v for k, v in vars(self).items() if k not in ("transitions", "final")}
        text = repr((sorted(rest.items()), sorted(self.final), moves))
        return int(sha256(text.encode()).hexdigest()[:12], 16) % 1_000_000


def random_machine(seed: int) -> Machine:
    """Draw symbol, direction and next state uniformly for every state and symbol.

    The machine never halts. Symbols are a1, a2, ..., under the head b1, b2, ...; states are s1, s2,
    ... (Hou et al. 2024, Section 5.3 and Appendix F). The blank is a1.
    """
    draw = random.Random(f"turing machine {seed}, {STATES} states, {SYMBOLS} symbols")
    moves = {
        key: Move(draw.randrange(SYMBOLS), draw.choice((-1, 1)), draw.randrange(STATES))
        for key in product(range(STATES), range(SYMBOLS))
    }
    return Machine(
        states=tuple(f"s{i + 1}" for i in range(STATES)),
        symbols=tuple(f"a{i + 1}" for i in range(SYMBOLS)),
        heads=tuple(f"b{i + 1}" for i in range(SYMBOLS)),
        transitions=moves,
        inputs=tuple(range(SYMBOLS)),
    )


def read_machine(path: Path) -> Machine:
    """Read a machine from a TOML file; `docs/turing-programs.md` shows one.

    Errors: MachineError for a file that cannot be read or does not describe a machine, and for a
    device, a pipe or a file of more than MOST_BYTES.
    """
    try:
        is_file = path.is_file() and path.stat().st_size <= MOST_BYTES
        if path.exists() and not (is_file or path.is_dir()):  # reading a folder raises OSError
            raise MachineError(f"expected a regular file of at most {MOST_BYTES:,} bytes")
        return machine_of(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except OSError as error:
        raise MachineError(f"machine {path}: {error.strerror or error}") from error
    except MachineError as error:
        raise MachineError(f"machine {path}: {error}") from error
    except (ValueError, RecursionError) as error:  # not TOML, or a number of thousands of digits
        raise MachineError(f"machine {path} cannot be read as TOML: {error}") from error


def machine_of(raw: dict[str, Any]) -> Machine:
    """Build a machine from the content of a file. Errors: MachineError."""
    if strange := sorted(raw.keys() - set(KEYS)):
        raise MachineError(unknown("key", strange[0], KEYS))
    if missing := [k for k in ("states", "symbols", "transitions") if k not in raw]:
        raise MachineError(f"{missing[0]} is missing; states, symbols and transitions are required")
    states, symbols = _names(raw, "states"), _names(raw, "symbols")
    names = (*states, *symbols, *(f"[{symbol}]" for symbol in symbols))
    if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise MachineError(f"{twice!r} names two things; states and symbols need different names")
    final = frozenset(_index("final", name, states) for name in _names(raw, "final", least=0))
    blank = _index("blank", raw.get("blank", symbols[-1]), symbols)
    default = [symbol for i, symbol in enumerate(symbols) if i != blank] or [*symbols]
    inputs = _names({"inputs": default} | raw, "inputs")
    return Machine(
        states=states,
        symbols=symbols,
        heads=tuple(f"[{symbol}]" for symbol in symbols),
        transitions=_moves(raw["transitions"], states, symbols, final),
        start=_index("start", raw.get("start", states[0]), states),
        final=final,
        blank=blank,
        inputs=tuple(_index("inputs", name, symbols) for name in inputs),
        max_steps=_max_steps(raw.get("max_steps", [10, 4, 1])),
    )


def _names(raw: dict[str, Any], key: str, least: int = 1) -> tuple[str, ...]:
    """Read a list of different names. Errors: MachineError."""
    names = raw.get(key, [])
    texts = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not texts or not least <= len(names) <= MOST:
        example = 'such as ["0", "1"]'
        raise MachineError(f"{key} must be {least} to {MOST} names, {example}, was {names!r:.60}")
    for i, name in enumerate(names):
        if not name or len(name) > 20 or not name.isprintable() or " " in name or name in MARKS:
            raise MachineError(
                f"{key} has {name!r}: expected 1 to 20 visible characters without blanks, "
                f"none of {' '.join(MARKS)}"
            )
        if name in names[:i]:
            raise MachineError(f"{key} has {name!r} twice")
    return tuple(names)


def _index(key: str, name: Any, names: tuple[str, ...]) -> int:
    if not isinstance(name, str):
        raise MachineError(f'{key} must be a text such as "{names[0]}", was {name!r}')
    if name not in names:
        raise MachineError(unknown(f"name in {key}:", name, names))
    return names.index(name)


def _max_steps(raw: Any) -> tuple[int, ...]:
    fits = isinstance(raw, list) and 1 <= len(raw) <= 4
    if not fits or not all(type(one) is int and 0 <= one <= 10_000 for one in raw) or not any(raw):
        raise MachineError(
            "max_steps must be 1 to 4 whole numbers from 0 to 10,000, [c0, c1, c2] for "
            f"c0 + c1 n + c2 n^2 steps on n symbols, was {raw!r}"
        )
    return tuple(raw)


def _moves(
    raw: Any, states: tuple[str, ...], symbols: tuple[str, ...], final: frozenset[int]
) -> dict[tuple[int, int], Move]:
    """Read a move for each symbol in each state that is not final. Errors: MachineError."""
    if not isinstance(raw, dict) or not all(isinstance(table, dict) for table in raw.values()):
        raise MachineError("transitions must hold a table per state: [transitions.STATE]")
    for state, table in raw.items():
        for symbol, move in table.items():
            if isinstance(move, dict):  # TOML reads a.b as a table in a table
                where = f"transitions.{state}.{symbol}"
                raise MachineError(f"{where} is a table; a name with a dot needs quotes")
    found = {}
    for state, table in raw.items():
        where, number = f"transitions.{state}", _index("transitions", state, states)
        if number in final:
            raise MachineError(f"{where}: {state} is final and cannot have moves")
        for symbol, move in table.items():
            read = _index(where, symbol, symbols)
            found[number, read] = _move(f"{where}.{symbol}", move, states, symbols)
    for number, read in product(range(len(states)), range(len(symbols))):
        if number not in final and (number, read) not in found:
            where = f"transitions.{states[number]}"
            raise MachineError(f"{where} has no move for the symbol {symbols[read]!r}")
    return found


def _move(where: str, raw: Any, states: tuple[str, ...], symbols: tuple[str, ...]) -> Move:
    texts = isinstance(raw, list) and all(isinstance(one, str) for one in raw)
    if not texts or len(raw) != 3 or raw[1] not in ("L", "R"):
        raise MachineError(f'{where} must be [symbol, "L" or "R", next state], was {raw!r}')
    return Move(_index(where, raw[0], symbols), DIRECTIONS[raw[1]], _index(where, raw[2], states))
