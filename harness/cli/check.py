"""`pezoo check NAME`: run the conformance checks on an encoding or a task."""

import sys
from textwrap import fill

import click

_NEEDED = {
    "check_constructible": "can be built",
    "check_deterministic": "computes the same twice",
}
_ROOTS = ("check_prefix_stability", "check_streaming")  # their faults make many other checks fail


@click.command()
@click.argument("name", required=False)
@click.option("--all", "every", is_flag=True, help="All encodings by name, in place of NAME.")
@click.option("--quiet", "-q", is_flag=True, help="Failures and the summary alone.")
def command(name: str | None, every: bool, quiet: bool) -> None:
    """Run every conformance check on an encoding ("rope", "randomized:rope") or a task.

    Failures come first, then the checks that pass, then a summary.
    """
    from harness import tasks
    from pezoo.spec import bare

    if every == (name is not None):
        raise click.UsageError("expected a NAME or --all")
    if name is not None and name.endswith(".py"):
        raise click.UsageError(
            f"expected the name of an encoding or a task, got the file {name}: put it into "
            "pezoo/encodings/, or install it as a package (docs/add-an-encoding.md)"
        )
    if name is None:
        bad = _every(quiet)
    else:
        bad = _task(name) if bare(name) in tasks.names() else _encoding(name, quiet)
    if bad:
        sys.exit(1)


def _every(quiet: bool) -> bool:
    """Run the checks on all encodings; return True if one fails."""
    from pezoo.registry import names
    from pezoo.spec import SpecError

    failed = []
    for name in names():
        click.echo(f"{name}:")
        try:
            bad = _encoding(name, quiet)
        except SpecError as error:  # of a plug-in
            click.echo(f"FAIL  {error}")
            bad = True
        failed += [name] * bad
    which = f" fail: {', '.join(failed)}" if failed else " pass"
    click.echo(f"\n{len(failed) or 'all'} of {len(names())} encodings{which}")
    return bool(failed)


def _encoding(name: str, quiet: bool) -> bool:
    """Run the checks on an encoding; return True if one fails."""
    from harness import tasks
    from pezoo.registry import check, entries, make, parse
    from pezoo.spec import SpecError, nearest
    from pezoo.testing import CHECKS, run_check

    try:
        spec = check(parse(name))
    except SpecError as error:
        task = "" if "did you mean" in str(error) else nearest(name, tasks.names())
        raise SpecError(f"{error}{task} (a task)" if task else str(error)) from error
    entries()[spec.name].load()
    passed: list[str] = []
    seen: dict[str, str] = {}  # an error to the check that met it first
    others: dict[str, list[str]] = {}  # that check to later ones that fail by the same fault
    for one in CHECKS:
        title = one.__name__
        try:
            run_check(one, lambda shape: make(spec, shape))
            passed.append(title)
        except AssertionError as error:
            first = seen.setdefault(str(error.__cause__), title)
            first = next((root for root in _ROOTS if root in seen.values()), first)
            later = others.setdefault(first, [])
            if first != title:
                later.append(title)
                continue
            click.echo(f"FAIL  {error}")
            if title in _NEEDED:
                click.echo(f"the other checks need one that {_NEEDED[title]}")
                return True
    for first, later in others.items():
        if later:
            words = f"fix {first} first; {len(later)} more fail with it: {', '.join(later)}"
            click.echo(fill(words, 100, subsequent_indent="      ", break_on_hyphens=False))
    click.echo("".join(f"ok    {title}\n" for title in passed if not quiet), nl=False)
    failures = len(CHECKS) - len(passed)
    words = f"{failures} of {len(CHECKS)} checks fail" if failures else f"all {len(passed)} pass"
    click.echo(words)
    return failures > 0


def _task(name: str) -> bool:
    from harness import tasks
    from harness.tasks.testing import check_task

    try:
        check_task(tasks.make(name))
    except AssertionError as error:
        click.echo(f"FAIL  {error}")
        return True
    click.echo(f"ok    {name}")
    return False
