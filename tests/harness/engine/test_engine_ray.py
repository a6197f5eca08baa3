"""A real Ray cluster on this machine: two workers, one of them killed in the middle."""

import os
import re
from pathlib import Path

import pytest

from harness.engine import EngineError, Options, make

pytestmark = pytest.mark.slow
LONG = ("train.steps=300", "train.checkpoint_every=10", "eval.every=300")
SAVED = r"stopped at step (\d+) of 50000, checkpoint saved"


def listening():
    """Addresses and ports, in hexadecimal, where this process and what it started listen."""
    children, ours, sockets = {}, {str(os.getpid())}, set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        children.setdefault(parent, set()).add(path.parent.name)
    while more := set().union(*(children.get(pid, set()) for pid in ours)) - ours:
        ours |= more
    for pid in ours:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(os.readlink(file))
            except OSError:
                continue
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    rows = [line.split() for line in table.splitlines() if " 0A " in line]
    return {row[1] for row in rows if f"socket:[{row[9]}]" in sockets}


@pytest.fixture(scope="module")
def elsewhere():
    """Return the addresses in use before the cluster starts."""
    return listening()


@pytest.fixture(scope="module")
def engine(elsewhere):
    """With a cluster of its own, of two cores, whose workers compute with one thread."""
    before, patch = dict(os.environ), pytest.MonkeyPatch()
    os.environ.pop("RAY_ADDRESS", None)
    os.environ |= {"RAY_worker_niceness": "0"}  # 15 starves them beside other tests
    import ray

    patch.setattr("harness.engine.ray.cores", lambda: 2)
    engine = make("ray", Options())
    for tries_left in (2, 1, 0):
        try:  # Ray gives itself 30 seconds, which a busy machine may exceed
            engine.device("auto")
            break
        except EngineError:
            ray.shutdown()
            if not tries_left:
                raise
    yield engine
    ray.shutdown()
    patch.undo()
    os.environ.clear()
    os.environ.update(before)


def test_a_killed_worker_is_replaced_and_the_records_are_the_same(
    engine, matrix, collect, kill_one, assert_like_here, tmp_path
):
    configs = matrix(*LONG, pe="rope,learned")
    events = collect(engine, configs, tmp_path, kill_one)
    (killed,) = kill_one.runs
    assert [i for i in events if any("again" in event for event in events[i])] == [killed]
    assert all(events[i][-1]["record"].status == "done" for i in events)
    assert events[killed][-1]["record"].cost.sessions == 2  # from its checkpoint
    assert len({event["pid"] for told in events.values() for event in told if "pid" in event}) >= 3
    assert not list(tmp_path.glob("*/progress.json"))
    assert_like_here(configs, tmp_path)


def test_ctrl_c_saves(engine, matrix, collect, press_ctrl_c, tmp_path):
    configs = matrix("train.steps=50000", pe="rope,learned")
    with pytest.raises(KeyboardInterrupt):
        collect(engine, configs, tmp_path, press_ctrl_c)
    busy = [event["busy"] for event in press_ctrl_c.last.values()]
    steps = [int(found[1]) for text in busy if (found := re.match(SAVED, text))]
    assert steps
    assert not list(tmp_path.glob(".sweep-*"))
    assert {int(path.stem[5:]) for path in tmp_path.glob("*/ckpt-*.json")} >= set(steps)


def test_what_the_cluster_lacks(engine):
    assert engine.device("auto") == "cpu"
    with pytest.raises(EngineError, match="no machine of this Ray cluster has a GPU"):
        engine.device("cuda")
    with pytest.raises(EngineError, match="expected auto, cpu or cuda, was 'cuda:1'"):
        engine.device("cuda:1")
    with pytest.raises(EngineError, match="largest machine of this cluster has 2 cores"):
        make("ray", Options(threads=3)).device("auto")


@pytest.mark.parametrize(("address", "words"), [("here", "host:port"), ("127.0.0.1:1", "refused")])
def test_an_address_without_a_cluster(monkeypatch, address, words):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(EngineError, match=words):
        make("ray", Options(address=address)).device("auto")


def test_a_cluster_of_its_own_is_not_reached_from_elsewhere(engine, elsewhere):
    addresses = {place.partition(":")[0] for place in listening() - elsewhere}
    assert addresses
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1
