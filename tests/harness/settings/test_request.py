"""Devices: what "auto" finds, and what is refused."""

import pytest
import torch

from experiment.config import ConfigError
from harness.runs.cost import forget_peak_memory, peak_memory_mb
from harness.settings.protocol import check_device, load_protocol, parse_request, resolve
from pezoo.kernels.backends import fastest
from pezoo.spec import parse


@pytest.mark.parametrize(
    ("cuda", "mps", "found"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto(cuda, mps, found, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert check_device("auto") == found


def test_a_device_that_is_not_there():
    with pytest.raises(ConfigError, match=r"'mps:7' cannot be used here: .*auto or cpu\)"):
        check_device("mps:7")
    with pytest.raises(ConfigError, match="unknown device 'mpss'; did you mean mps"):
        check_device("mpss")
    assert check_device("cpu:0") == check_device("cpu") == "cpu"
    for wrong in ("cpu:1", "cpu:99", "cpu:", "cpu:-1", "cuda:١"):
        with pytest.raises(ConfigError, match="device"):
            check_device(wrong)


@pytest.mark.parametrize(
    ("pe", "sets", "words"),
    [
        ("rope", "steps=500", r"'steps'; did you mean train.steps\?"),
        ("rope", "train.steps=abc", "train.steps: expected a whole number, was 'abc'"),
        ("rope", "train.lr=fast", "train.lr: expected a number, was 'fast'"),
        ("copy", "train.steps=5", "--pe copy is a task: give it with --task"),
        ("rpoe", "train.steps=5", r"'rpoe'; did you mean rope\?$"),
    ],
)
def test_a_wrong_word_is_answered_by_the_right_one(pe, sets, words):
    with pytest.raises(ValueError, match=words):
        parse_request(pe, "copy", "quick", "0", (sets,))


def test_kernels_on_apples_gpu_are_torchs():
    found = {kernel: fastest(kernel, "mps") for kernel in ("histogram", "spectral")}
    assert found == {"histogram": "reference", "spectral": "parallel"}


def test_memory_on_apples_gpu(monkeypatch):
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 3 << 20)
    forget_peak_memory("mps")
    assert peak_memory_mb("mps") == 3.0


def test_a_second_name_is_kept_as_typed():
    asked = parse_request("label_based(max_len=64)", "copy", "quick", "0", ())
    assert [str(spec) for spec in asked.encodings] == ["label_based(max_len=64)"]
    for name in ("label_based", "randomized:learned"):
        run = resolve(load_protocol("ruoss2023-mini"), "copy", parse(name), 0, "cpu", "auto")
        assert (run.encoding, run.spec) == (name, "randomized:learned(max_len=2048,std=1.0)")
    with pytest.raises(ConfigError, match="named twice"):
        parse_request("label_based,randomized:learned", "copy", "quick", "0", ())


def test_a_task_that_no_test_length_has():
    asked = parse_request(
        "rope",
        "modular_arithmetic_simple",
        "quick",
        "0",
        ("tasks.modular_arithmetic_simple.eval_lengths=[2]",),
    )
    with pytest.raises(ConfigError, match=r"a length in eval\.lengths; nearest to 2: 1"):
        asked.configs("cpu", "auto")


def test_options_that_the_protocol_gives_make_no_second_encoding():
    given = "alibi(asymmetric=true),rope,alibi", "copy", "ruoss2023-mini", "0", ()
    with pytest.raises(ConfigError, match="and alibi are one encoding with"):
        parse_request(*given).configs("cpu", "auto")
    other = parse_request("alibi(asymmetric=false),rope,alibi", *given[1:])
    assert len(other.configs("cpu", "auto")) == 3
