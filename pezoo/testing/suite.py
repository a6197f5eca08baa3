"""Run all checks on one encoding, or parametrise a test over many."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch

from pezoo.testing import claims, hooks, parameters, sequences
from pezoo.testing.probe import Check, Factory

CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (hooks, parameters, sequences, claims)
    for name, check in vars(module).items()
    if name.startswith("check_")  # in the order of their definition
)

_BROADCAST = ": [:, None] gives ctx.distance(), (B|1, T, S), the axis of heads"
_PEZOO = Path(__file__).parents[1]
_OURS = ("testing", "adapters", "registry.py")
_NOT_THEIRS = (*(str(_PEZOO / name) for name in _OURS), torch.__path__[0])


def check_encoding(factory: Factory, *, expected_failures: Mapping[str, str] | None = None) -> None:
    """Run every check on the encodings that `factory(shape)` makes.

    expected_failures maps a check's name ("check_long") to the reason why it fails. If such a check
    passes, that is an error too.

    Errors: AssertionError naming the check; ValueError for an unknown check or an empty reason.
    """
    expected = dict(expected_failures or {})
    _check_reasons(expected)
    for check in CHECKS:
        run_check(check, factory, expected.get(check.__name__))


def run_check(check: Check, factory: Factory, expected: str | None = None) -> None:
    """Run one check; with the reason of an expected failure, it must fail."""
    try:
        check(factory)
    except (Exception, SystemExit) as error:
        if expected is None:
            raise AssertionError(f"{check.__name__}: {_plain(check, error)}") from error
        return
    if expected is not None:
        raise AssertionError(
            f"{check.__name__} passes now: remove it from expected_failures ({expected})"
        )


def parametrize_with_checks(
    factories: Mapping[str, Factory],
    expected_failures: Mapping[str, Mapping[str, str]] | None = None,
) -> Any:
    """Return a pytest decorator: the test gets `check`, called with a factory, and `factory`."""
    import pytest

    expected = {name: dict(reasons) for name, reasons in (expected_failures or {}).items()}
    cases = []
    for name, factory in factories.items():
        reasons = expected.pop(name, {})
        _check_reasons(reasons)
        for check in CHECKS:
            bound = partial(run_check, check, expected=reasons.get(check.__name__))
            cases.append(pytest.param(bound, factory, id=f"{name}-{check.__name__[6:]}"))
    if expected:
        raise ValueError(f"expected_failures has unknown encodings: {', '.join(expected)}")
    return pytest.mark.parametrize(("check", "factory"), cases)


def _check_reasons(expected: Mapping[str, str]) -> None:
    known = [check.__name__ for check in CHECKS]
    for name, reason in expected.items():
        if name not in known:
            raise ValueError(f"no check is called {name!r}; known: {', '.join(known)}")
        if not reason.strip():
            raise ValueError(f"expected_failures: {name} needs a reason")


def _plain(check: Check, error: BaseException) -> str:
    if isinstance(error, AssertionError):
        return f"{error}{_place(error)}"
    what, place = (check.__doc__ or "").splitlines()[0], _place(error)
    in_logits = place.endswith((" in bias", " in scores"))
    hint = _BROADCAST if in_logits and "must match the size of tensor" in str(error) else ""
    return f"{type(error).__name__}: {error}{place}{hint} (while checking: {what})"


def _place(error: BaseException) -> str:
    """Return the line of the encoding that raised an error, or an empty string."""
    for frame in reversed(extract_tb(error.__traceback__)):
        if not frame.filename.startswith(_NOT_THEIRS) and frame.name != "<lambda>":
            return f", at {Path(frame.filename).name}:{frame.lineno} in {frame.name}"
    return ""
