"""The script that times encodings in a model of transformers."""

import pytest
from click.testing import CliRunner


@pytest.mark.slow
def test_a_small_model():
    pytest.importorskip("transformers")
    import in_transformers  # here, because it takes seconds

    options = "--pe nope --rounds 2 --layers 1 --width 64 --dtype float32"
    done = CliRunner().invoke(in_transformers.main, options.split())
    assert done.exit_code == 0, done.output
    head, _, *rows = [line.strip("| ").split(" | ") for line in done.output.splitlines()]
    assert head == ["step", "own attention", "nope"]
    steps = [row[:2] for row in rows]
    assert steps == [[step, own] for own in ("sdpa", "eager") for step in ("train", "decode")]
    assert all(float(row[2].split()[0]) > 0 for row in rows)
