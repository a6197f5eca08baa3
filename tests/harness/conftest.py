"""The command line, called as a user would."""

import sys

import pytest

from harness.cli.main import main


@pytest.fixture
def call(monkeypatch, capsys):
    """(*args) -> exit code, stdout and stderr of `pezoo args`."""

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["pezoo", *map(str, args)])
        try:
            main()
            code = 0
        except SystemExit as error:
            code = error.code
        out = capsys.readouterr()
        return code, out.out, out.err

    return call
