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


@pytest.fixture(scope="session")
def assert_alike():
    """(record, record): of one run, but for the rounding of sums; `within` is for the losses."""

    def check(one, two, within=1e-5):
        assert one["run"] == two["run"]
        for name in ("status", "reason", "backbone_hash", "data_hash", "config"):
            assert one[name] == two[name], name
        for a, b in zip(one["learning"], two["learning"], strict=True):
            assert a["step"] == b["step"]
            assert a["loss"] == pytest.approx(b["loss"], abs=within)
        assert one["cost"]["tokens"] == two["cost"]["tokens"]

    return check
