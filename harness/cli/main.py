"""The entry point: a click group whose commands are imported only when called."""

import errno
import re
import sys
import warnings
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import click

COMMANDS = {
    "bench": ("harness.cli.bench", "Train encodings on tasks and compare their extrapolation."),
    "list": ("harness.cli.listing", "List or describe encodings, tasks and protocols."),
    "leaderboard": ("harness.cli.leaderboard", "Build, open and check the leaderboard; add runs."),
    "table": ("harness.cli.table", "Reproduce a table or figure of a paper from records."),
    "explain": ("harness.cli.explain", "Print what theory predicts for encodings on a task."),
    "show": ("harness.cli.show", "Print a finished run and draw what it has learned."),
    "try": ("harness.cli.try_run", "Answer a prompt with a trained run."),
    "extend": (
        "harness.cli.extend",
        "Read longer texts with a model of your own, in several ways.",
    ),
    "perf": ("harness.cli.perf", "Time encodings, side by side."),
    "check": ("harness.cli.check", "Run the conformance checks on an encoding or a task."),
}


class Lazy(click.Group):
    """A group that imports a command only when it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return import_module(COMMANDS[name][0]).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]):  # type: ignore[no-untyped-def]
        if args and args[0] not in COMMANDS:
            from pezoo.spec import unknown

            ctx.fail(unknown("command", args[0], COMMANDS))
        for option, value in pairwise(args):
            if option.startswith("--") and "=" not in option and not value.strip():
                ctx.fail(f"{option} expects a value, got an empty text")
        return super().resolve_command(ctx, args)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pezoo")
def cli() -> None:
    """Compare positional encodings in identical Transformers.

    pezoo bench --pe prism,randomized --task odds_first
    """


def main() -> None:
    """Exit with 2 and one message for bad input, 1 for a failed run, 130 after Ctrl-C."""
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        _fail(error.format_message())
    except (click.Abort, KeyboardInterrupt) as error:
        click.echo("interrupted; run the same command to continue", err=True)
        sys.exit(128 + getattr(error.__cause__, "signal", 2))
    except (MemoryError, RecursionError) as error:
        words = "more memory" if isinstance(error, MemoryError) else "a deeper nesting"
        _fail(f"this needs {words} than there is: {error}")
    except RuntimeError as error:  # torch raises it when memory runs out
        from harness.runs.record import failure_reason

        if not failure_reason(error).startswith("out of memory"):
            raise
        _fail(f"this needs more memory than there is: {error}")
    except ValueError as error:  # all invalid input raises ValueError
        _fail(f"{error}")
    except OSError as error:
        path = error.filename2 or error.filename
        words = error.strerror or error
        if path is not None:
            words = f"cannot read or write {path!s:.200}: {error.strerror}"
        wrong = (PermissionError, NotADirectoryError, IsADirectoryError, FileExistsError)
        bad = isinstance(error, wrong) or error.errno == errno.ENAMETOOLONG
        _fail(f"{words}", 2 if bad else 1)
    except BaseException as error:
        _check_ours(error)
        raise


def _fail(message: str, code: int = 2) -> NoReturn:
    """Print a message, in which what was typed is shortened, and exit."""
    from pezoo.spec import LONG, brief

    for word in sorted(filter(lambda word: len(word) > LONG, sys.argv), key=len, reverse=True):
        message = message.replace(repr(word), brief(word)).replace(word, brief(word))
    message = re.sub(rf"\S{{{LONG + 20},}}", lambda found: f"{found[0][:LONG]}...", message)
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)


def _check_ours(error: BaseException) -> None:
    """End with 2 and one message where code of others would end the command, as sys.exit does."""
    from traceback import extract_tb

    if isinstance(error, Exception):
        return
    last = extract_tb(error.__traceback__)[-1]
    if not last.filename.startswith(str(Path(__file__).parents[1])):
        place = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
        _fail(f"{type(error).__name__}: {error} ({place})")
