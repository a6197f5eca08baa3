"""A real Ray cluster on this machine: two workers, one of them killed in the middle."""

import os
import re
import subprocess
import sys

import pytest

from harness.engine import EngineError, Options, make

pytestmark = pytest.mark.slow
LONG = ("train.steps=300", "train.checkpoint_every=10", "eval.every=300")
SAVED = r"stopped at step (\d+) of 50000, checkpoint saved"


@pytest.fixture(scope="module")
def engine():
    """Connected to a cluster of its own, whose workers compute with one thread."""
    before = dict(os.environ)
    os.environ.pop("RAY_ADDRESS", None)
    import ray

    for tries_left in (2, 1, 0):
        try:  # Ray gives itself 30 seconds, which a busy machine may exceed
            ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100_000_000)
            break
        except Exception:
            ray.shutdown()
            if not tries_left:
                raise
    yield make("ray", Options())
    ray.shutdown()
    os.environ.clear()
    os.environ.update(before)


def test_a_killed_worker_is_replaced_and_the_records_are_the_same(
    engine, matrix, collect, kill_one, assert_like_here, tmp_path
):
    configs = matrix(*LONG, pe="rope,learned,nope")
    events = collect(engine, configs, tmp_path, kill_one)
    (killed,) = kill_one.runs
    assert [i for i in events if any("again" in event for event in events[i])] == [killed]
    assert all(events[i][-1]["record"].status == "done" for i in events)
    assert events[killed][-1]["record"].cost.sessions == 2  # from its checkpoint
    assert len({event["pid"] for told in events.values() for event in told if "pid" in event}) >= 3
    assert not list(tmp_path.glob("*/progress.json"))
    assert_like_here(configs, tmp_path)


def test_ctrl_c_saves(engine, matrix, collect, press_ctrl_c, tmp_path):
    configs = matrix("train.steps=50000")
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


LISTEN = """
import os
from harness.engine import Options, make
from pathlib import Path
make("ray", Options()).device("cpu")
children, ours = {}, {str(os.getpid())}
for path in Path("/proc").glob("[0-9]*/stat"):
    children.setdefault(path.read_text().rpartition(")")[2].split()[1], set()).add(path.parent.name)
while more := set().union(*(children.get(pid, set()) for pid in ours)) - ours:
    ours |= more
sockets = set()
for pid in ours:
    for file in os.listdir(f"/proc/{pid}/fd"):
        try:
            sockets.add(os.readlink(f"/proc/{pid}/fd/{file}"))
        except OSError:
            pass
for kind in ("tcp", "tcp6"):
    for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            print(words[1].partition(":")[0])
"""


def test_a_cluster_of_its_own_is_not_reached_from_elsewhere():
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    words = [sys.executable, "-c", LISTEN]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
    addresses = set(done.stdout.split())
    assert addresses, done.stderr
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1
