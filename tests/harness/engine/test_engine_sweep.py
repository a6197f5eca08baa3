"""The rules that every engine shares, with workers that only pretend."""

import signal
from collections import deque
from types import SimpleNamespace

import pytest

from harness.engine.scheduler import Jobs


class Scripted:
    """Workers whose runs go through the given last events, one per start."""

    tries = 4

    def __init__(self, **script):
        self.script = {int(run[1:]): list(events) for run, events in script.items()}
        self.busy, self.most, self.order, self.closed = [], 0, [], False
        self.stacks = []

    def start(self, runs, configs):
        assert len(runs) == len(configs)
        self.busy += runs
        self.order += runs
        self.most = max(self.most, len(self.busy))
        if len(runs) > 1:
            self.stacks.append(runs)

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


ALONE = [(0,), (1,), (2,)]


def run_all(workers, configs, root, most, report, plan):
    Jobs(workers, configs, deque(plan), most, root, "test", report).run_all()


def last_events(workers, configs, root, most=2, plan=ALONE):
    last = {}
    run_all(workers, configs, root, most, last.__setitem__, plan)
    assert workers.closed
    return last


DONE = {"record": {"status": "done"}}


def test_all_are_run_so_many_at_a_time(matrix, tmp_path):
    workers = Scripted(r0=[DONE], r1=[DONE], r2=[DONE])
    assert last_events(workers, matrix(), tmp_path) == {0: DONE, 1: DONE, 2: DONE}
    assert workers.most == 2


def test_a_run_whose_process_dies_is_tried_so_often_and_then_has_failed(matrix, tmp_path):
    died = {"died": "SIGKILL"}
    workers = Scripted(r0=[died, DONE], r1=[died] * 4, r2=[DONE])
    last = last_events(workers, matrix(), tmp_path)
    assert last[0] == DONE
    assert last[1]["record"]["status"] == "failed"
    assert last[1]["record"]["reason"] == "its process died 4 times, at last by SIGKILL"
    assert workers.order.count(1) == 4


def test_a_run_that_is_held_is_tried_once_more_after_the_others(matrix, tmp_path):
    held = {"busy": "another process is training it"}
    workers = Scripted(r0=[dict(held), dict(held)], r1=[DONE], r2=[DONE])
    assert last_events(workers, matrix(), tmp_path, 1) == {0: held, 1: DONE, 2: DONE}
    assert workers.order == [0, 1, 2, 0]


def test_one_that_is_held_waits_for_others_that_are_known(tmp_path):
    configs = [SimpleNamespace(task="copy", encoding=name) for name in ("held", "a", "a", "a")]
    held = {"busy": "another process is training it"}
    workers = Scripted(r0=[dict(held), dict(DONE)], r1=[DONE], r2=[DONE], r3=[DONE])
    plan = [(run,) for run in range(4)]
    assert last_events(workers, configs, tmp_path, 1, plan)[0] == DONE
    assert workers.order == [0, 1, 2, 3, 0]


def test_a_full_disk_starts_nothing_more(matrix, tmp_path):
    workers = Scripted(r0=[{"error": "disk full", "halt": True}])
    last = last_events(workers, matrix(), tmp_path, 1)
    assert last == {0: {"error": "disk full; 2 more not started"}}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_what_is_saved(number, matrix, tmp_path):
    workers, last, before = Scripted(r0=[number], r1=[]), {}, signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as caught:
        run_all(workers, matrix(), tmp_path, 2, last.__setitem__, ALONE)
    assert caught.value.signal == number
    assert last == {0: {"busy": "saved"}, 1: {"busy": "saved"}}
    assert workers.closed
    assert signal.getsignal(number) is before


def test_a_stack_that_dies_is_tried_as_one_and_at_last_run_by_run(matrix, tmp_path):
    died = {"died": "SIGKILL"}
    workers = Scripted(r0=[DONE], r1=[died, died, died, DONE], r2=[died] * 4)
    last = last_events(workers, matrix(), tmp_path, 1, [(0, 1, 2)])
    assert workers.stacks == [(0, 1, 2), (1, 2), (1, 2)]
    assert workers.order[-2:] == [1, 2]
    assert (last[0], last[1]) == (DONE, DONE)
    assert last[2]["record"]["reason"] == "its process died 4 times, at last by SIGKILL"


class Timed(Scripted):
    """Workers whose runs take so many seconds, by encoding, on a clock of their own."""

    def __init__(self, configs, seconds):
        super().__init__()
        self.configs, self.seconds, self.now, self.ends = configs, seconds, 0.0, {}

    def start(self, runs, configs):
        super().start(runs, configs)
        self.ends[runs[0]] = self.now + self.seconds[self.configs[runs[0]].encoding]

    def wait(self, interrupt):
        run = min(self.ends, key=self.ends.get)
        self.now = self.ends.pop(run)
        self.busy.remove(run)
        yield run, {"record": {"status": "done"}}


def test_of_the_last_runs_the_longest_begin_first(tmp_path, monkeypatch):
    configs = [SimpleNamespace(task="copy", encoding=name) for name in ("slow", "fast") * 3]
    workers = Timed(configs, {"slow": 140.0, "fast": 30.0})
    monkeypatch.setattr("harness.engine.scheduler.time.monotonic", lambda: workers.now)
    last_events(workers, configs, tmp_path, 2, [(run,) for run in range(6)])
    assert workers.order == [0, 1, 2, 4, 3, 5]
    assert workers.now == 280  # in the order given it would be 310
