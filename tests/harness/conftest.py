"""The command line, called as a user would."""

import sys

import pytest

import leaderboard.stats.frame  # noqa: F401  it keeps the folder that `call` replaces for a while
from harness.cli.main import main


@pytest.fixture
def call(monkeypatch, capsys, tmp_path_factory):
    """(*args) -> exit code, stdout and stderr of `pezoo args`.

    The site that bench writes has no committed records, whose pages take seconds.
    """
    none = tmp_path_factory.getbasetemp() / "no-records"
    none.mkdir(exist_ok=True)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["pezoo", *map(str, args)])
        try:
            with monkeypatch.context() as patch:
                if args[0] == "bench":
                    patch.setattr("leaderboard.record.read.RECORDS", none)
                main()
            code = 0
        except SystemExit as error:
            code = error.code
        out = capsys.readouterr()
        return code, out.out, out.err

    return call
