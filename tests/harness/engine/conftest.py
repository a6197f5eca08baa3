"""A small matrix; whether an engine's runs are those that this process makes without one."""

import os
import signal
import time

import pytest
from soak import SETTINGS, same, weights

from harness.runs.folder import finished
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from pezoo.spec import parse_list

# An own token, so that other clusters are not found. Ray reads it once, when it is imported.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(16).hex()}


@pytest.fixture(scope="session")
def matrix():
    """(settings..., pe, seeds) -> one config per encoding and seed."""

    def build(*settings, pe="rope,learned,prism_2025(cursors=1,d_pe=8,hidden=8)", seeds=(0,)):
        protocol = load_protocol("quick", (*SETTINGS, *settings))
        return [
            resolve(protocol, "copy", spec, seed, "cpu", "auto")
            for spec in parse_list(pe)
            for seed in seeds
        ]

    return build


@pytest.fixture(scope="module")
def assert_like_here(tmp_path_factory):
    """(configs, root): weights, scores and learning curves are the same, bit for bit."""
    here = tmp_path_factory.mktemp("here")

    def check(configs, root):
        for config in configs:
            ours = execute(config, here, "test", lambda event: None)
            theirs = finished(root / config.hash)
            assert same(ours, theirs)
            assert weights(here, config) == weights(root, config)
            assert theirs.env.threads == ours.env.threads == 1

    return check


@pytest.fixture(scope="session")
def collect():
    """(engine, configs, root, on_event) -> the events of each run, in order."""

    def run(engine, configs, root, on_event=lambda index, event: None):
        events = {index: [] for index in range(len(configs))}

        def note(index, event):
            events[index].append(event)
            on_event(index, event)

        engine.run_all(configs, root, "test", note)
        return events

    return run


@pytest.fixture
def kill_one(tmp_path):
    """An on_event that kills the first worker it hears of, once that has saved a checkpoint.

    `kill_one.runs` names its run.
    """
    runs = []

    def on_event(index, event):
        if "loss" in event and not runs:
            runs.append(index)
            end = time.monotonic() + 300
            while not list(tmp_path.glob(f"{event['run']}/ckpt-*.json")):
                assert time.monotonic() < end
                time.sleep(0.01)
            os.kill(event["pid"], signal.SIGKILL)

    on_event.runs = runs
    return on_event


@pytest.fixture
def press_ctrl_c(tmp_path):
    """An on_event that stands for Ctrl-C at the first sign that a run trains.

    `press_ctrl_c.last` holds the last event of each run. A shell's background jobs ignore the key;
    the test does not.
    """
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    last, pressed = {}, []

    def on_event(index, event):
        if "loss" in event and not pressed:
            pressed.append(index)  # a second Ctrl-C would end the wait for what is saved
            signal.raise_signal(signal.SIGINT)
        last[index] = event

    on_event.last = last
    yield on_event
    signal.signal(signal.SIGINT, usual)
