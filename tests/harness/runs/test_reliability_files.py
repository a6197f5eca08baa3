"""Files that are damaged, hostile, or cannot be written."""

import errno
import hashlib
import os
import pickle
import random
import resource
import shutil
import subprocess
import warnings

import pytest
from soak import SETTINGS, same, weights

from experiment.config import ConfigError
from harness.runs.files import WriteError, read_sealed, write, write_json, write_sealed
from harness.runs.folder import RunFolder, finished
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.spec import parse


@pytest.fixture(scope="module")
def config():
    return resolve(load_protocol("quick", SETTINGS), "copy", parse("learned"), 0, "cpu", "auto")


@pytest.fixture(scope="module")
def whole(config, tmp_path_factory):
    """The folder with the run as it is without any fault."""
    root = tmp_path_factory.mktemp("whole")
    run(config, root)
    return root


def run(config, root, stop=lambda: False):
    return execute(config, root, "test", lambda event: None, stop)


def newest(config, root):
    """The step that a new process would go on from, and whether something was found damaged."""
    trainer = start(config)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RunFolder(root, config).restore(trainer)
    return trainer.step, sum("damaged" in str(one.message) for one in caught)


def truncate(content, draws):
    return content[: draws.randrange(len(content))]


def flip(content, draws):
    changed = bytearray(content)
    changed[draws.randrange(len(content))] ^= 1 << draws.randrange(8)
    return bytes(changed)


def empty(content, draws):
    return b""


@pytest.mark.parametrize("kind", ["safetensors", "pt", "json"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(config, whole, tmp_path, kind, train_to):
    folder = train_to(config, tmp_path, 10)
    path = folder / f"ckpt-00000009.{kind}"
    content = path.read_bytes()
    for damage in (truncate, flip, empty):
        for seed in range(5):
            path.write_bytes(damage(content, random.Random(seed)))
            assert newest(config, tmp_path) == (6, 1)
    with pytest.warns(UserWarning, match="checkpoint 9 is damaged"):
        record = run(config, tmp_path)
    assert same(record, finished(whole / config.hash))
    assert weights(tmp_path, config) == weights(whole, config)


def test_every_byte_of_the_small_file_counts(config, tmp_path, train_to):
    folder = train_to(config, tmp_path, 10)
    path = folder / "ckpt-00000009.json"
    content = path.read_bytes()
    assert read_sealed(path) is not None
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        assert read_sealed(path) is None


def test_everything_damaged_means_from_the_start(config, whole, tmp_path, train_to):
    folder = train_to(config, tmp_path, 10)
    for path in folder.glob("ckpt-*.pt"):
        path.unlink()
    assert newest(config, tmp_path) == (0, 2)
    with pytest.warns(UserWarning, match="damaged"):
        record = run(config, tmp_path)
    assert same(record, finished(whole / config.hash))
    assert len(list(folder.glob("ckpt-*.json"))) == 2


def test_a_damaged_best_model_is_made_again(config, whole, tmp_path, train_to):
    folder = train_to(config, tmp_path, 14)
    best = folder / "best-00000010.safetensors"
    best.write_bytes(flip(best.read_bytes(), random.Random(0)))
    assert newest(config, tmp_path) == (9, 1)  # the checkpoint at 12 names it, that at 9 does not
    with pytest.warns(UserWarning, match="checkpoint 12 is damaged"):
        record = run(config, tmp_path)
    assert same(record, finished(whole / config.hash))
    assert weights(tmp_path, config) == weights(whole, config)


class Payload:
    """A payload that runs when unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("kind", ["safetensors", "pt", "json"])
def test_a_pickle_in_place_of_a_checkpoint_is_not_executed(config, tmp_path, kind, train_to):
    folder = train_to(config, tmp_path, 10)
    mark = tmp_path / "executed"
    content = pickle.dumps(Payload(mark))
    name = f"ckpt-00000009.{kind}"
    (folder / name).write_bytes(content)
    if kind != "json":  # with a checksum that agrees
        index = read_sealed(folder / "ckpt-00000009.json")
        index["files"][name] = hashlib.sha256(content).hexdigest()
        write_sealed(folder / "ckpt-00000009.json", index)
    assert newest(config, tmp_path) == (6, 1)
    with pytest.warns(UserWarning, match="damaged"):
        run(config, tmp_path)
    assert not mark.exists()
    pickle.loads(content)  # it would have shown
    assert mark.exists()


def test_weights_of_other_code_are_an_error_with_a_reason(config, tmp_path, train_to):
    train_to(config, tmp_path, 10)
    other = config.model_copy(update={"spec": "learned(max_len=64)"})
    os.rename(tmp_path / config.hash, tmp_path / other.hash)
    for path in (tmp_path / other.hash).glob("ckpt-*.json"):
        write_sealed(path, read_sealed(path) | {"run": other.hash})
    record = run(other, tmp_path)
    assert record.status == "failed"
    assert "size mismatch for encoding.table" in record.reason


def test_files_of_another_run_are_not_taken(config, whole, tmp_path, train_to):
    other = config.replace(seed=1)
    train_to(other, tmp_path, 10)
    os.rename(tmp_path / other.hash, tmp_path / config.hash)
    assert newest(config, tmp_path) == (0, 2)
    run(other, tmp_path)
    for name in ("result.json", "DONE"):
        shutil.copy(tmp_path / other.hash / name, tmp_path / config.hash)
    with pytest.warns(UserWarning, match="result.json is of another run, not used"):
        assert finished(tmp_path / config.hash) is None
    with pytest.warns(UserWarning, match="of another run"):
        record = run(config, tmp_path)
    assert same(record, finished(whole / config.hash))


def test_a_link_in_place_of_a_run_is_refused_and_not_followed(config, tmp_path):
    root, outside = tmp_path / "runs", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / ".notes").touch()
    (root / config.hash).symlink_to(outside)
    with pytest.raises(ConfigError, match="is a link"):
        run(config, root)
    (root / config.hash).unlink()
    folder = RunFolder(root, config)
    with folder.lock():
        (folder.path / "pictures").symlink_to(outside)
        (folder.path / ".held").symlink_to(outside / ".notes")
        folder.tidy()
        folder.clear()
    assert [path.name for path in folder.path.iterdir()] == [".lock"]
    assert [path.name for path in outside.iterdir()] == [".notes"]


def test_what_another_living_process_writes_stays_until_it_is_dead(config, tmp_path):
    folder, other = RunFolder(tmp_path, config), subprocess.Popen(["sleep", "60"])
    with folder.lock():
        written = folder.path / f".tuning.json.{other.pid}"
        written.touch()
        (folder.path / f".DONE.{os.getpid()}").touch()
        folder.tidy()
        assert {path.name for path in folder.path.iterdir()} == {".lock", written.name}
        other.kill()
        other.wait()
        folder.tidy()
        assert not written.exists()


def test_a_sweep_is_written_once(config, tmp_path, monkeypatch):
    folder, sweep = RunFolder(tmp_path, config), {"grid": {"lr": (1e-3, 3e-3)}, "seeds": [100]}
    folder.note_tuning(sweep)
    written = []
    monkeypatch.setattr("harness.runs.folder.write_json", lambda path, value: written.append(value))
    folder.note_tuning(sweep)
    assert written == []
    folder.note_tuning(sweep | {"seeds": [101]})
    assert len(written) == 1


@pytest.mark.parametrize("name", ["result.json", "DONE", "ckpt-00000009.json", "ckpt-00000009.pt"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(config, tmp_path, name, train_to):
    folder = train_to(config, tmp_path, 10)
    (folder / "result.json").touch()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert finished(folder) is None
    assert newest(config, tmp_path) == ((6, 1) if "ckpt" in name else (9, 0))


def test_a_file_that_cannot_be_written(tmp_path):
    path = tmp_path / "result.json"
    write(path, b"good")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(
            WriteError, match=r"cannot write .*result.json \(2000 bytes\)"
        ) as caught:
            write(path, bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"good"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, float("nan"))
    assert path.read_bytes() == b"good"
