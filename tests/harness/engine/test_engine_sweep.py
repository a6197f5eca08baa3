"""The rules that every engine shares, with workers that only pretend."""

import signal
from types import SimpleNamespace

import pytest

from harness.engine.scheduler import Scheduler


class Scripted:
    """Workers whose runs go through the given last events, one per start."""

    tries = 4

    def __init__(self, **script):
        self.script = {int(run[1:]): list(events) for run, events in script.items()}
        self.busy, self.most, self.order, self.closed = [], 0, [], False

    def start(self, run, config):
        self.busy.append(run)
        self.order.append(run)
        self.most = max(self.most, len(self.busy))

    def wait(self, interrupt):
        run = self.busy[0]
        event = self.script[run].pop(0)
        if isinstance(event, signal.Signals):
            signal.raise_signal(event)
            return
        self.busy.remove(run)
        yield run, event

    def stop(self):
        self.script = {run: [{"busy": "saved"}] for run in self.busy}

    def close(self):
        self.closed = True


class Timed(Scripted):
    """Workers whose runs take so many seconds, by encoding, on a clock of their own."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.now, self.ends = seconds, 0.0, {}

    def start(self, run, config):
        super().start(run, config)
        self.ends[run] = self.now + self.seconds[config.spec]

    def wait(self, interrupt):
        run = min(self.ends, key=self.ends.get)
        self.now = self.ends.pop(run)
        self.busy.remove(run)
        yield run, dict(DONE)


DONE = {"record": "a record"}
DIED = {"died": "SIGKILL"}
HELD = {"busy": "another process is training it"}


def last_events(workers, configs, root, most=2, last=None):
    last = {} if last is None else last
    try:
        Scheduler(workers, configs, most, root, "test", last.__setitem__).run_all()
    finally:
        assert workers.closed
    return last


def runs_of(*encodings):
    return [SimpleNamespace(task="copy", spec=name) for name in encodings]


def test_all_are_run_so_many_at_a_time(matrix, tmp_path):
    workers = Scripted(r0=[DONE], r1=[DONE], r2=[DONE])
    assert last_events(workers, matrix(), tmp_path) == {0: DONE, 1: DONE, 2: DONE}
    assert workers.most == 2


def test_a_run_whose_process_dies_is_tried_so_often_and_then_has_failed(matrix, tmp_path):
    workers = Scripted(r0=[DIED, DONE], r1=[DIED] * 4, r2=[DONE])
    last = last_events(workers, matrix(), tmp_path)
    assert last[0] == DONE
    assert last[1]["record"].status == "failed"
    assert last[1]["record"].reason == "its process died 4 times, at last by SIGKILL"
    assert workers.order.count(1) == 4


def test_a_run_that_is_held_is_tried_once_more_after_the_others(matrix, tmp_path):
    workers = Scripted(r0=[dict(HELD), dict(HELD)], r1=[DONE], r2=[DONE])
    assert last_events(workers, matrix(), tmp_path, 1) == {0: HELD, 1: DONE, 2: DONE}
    assert workers.order == [0, 1, 2, 0]


def test_one_that_is_held_waits_for_others_that_are_known(tmp_path):
    workers = Scripted(r0=[dict(HELD), dict(DONE)], r1=[DONE], r2=[DONE], r3=[DONE])
    assert last_events(workers, runs_of("held", "a", "a", "a"), tmp_path, 1)[0] == DONE
    assert workers.order == [0, 1, 2, 3, 0]


def test_a_full_disk_starts_nothing_more(matrix, tmp_path):
    workers = Scripted(r0=[{"error": "disk full", "halt": True}])
    last = last_events(workers, matrix(), tmp_path, 1)
    assert last == {0: {"error": "disk full; 2 more not started"}}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_what_is_saved(number, matrix, tmp_path):
    workers, last, before = Scripted(r0=[number], r1=[]), {}, signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as caught:
        last_events(workers, matrix(), tmp_path, last=last)
    assert caught.value.signal == number
    assert last == {0: {"busy": "saved"}, 1: {"busy": "saved"}}
    assert signal.getsignal(number) is before


def test_of_the_last_runs_the_longest_begin_first(tmp_path, monkeypatch):
    workers = Timed({"slow": 140.0, "fast": 30.0})
    monkeypatch.setattr("harness.engine.scheduler.time.monotonic", lambda: workers.now)
    last_events(workers, runs_of(*("slow", "fast") * 3), tmp_path)
    assert workers.order == [0, 1, 2, 4, 3, 5]
    assert workers.now == 280  # in the order given it would be 310
