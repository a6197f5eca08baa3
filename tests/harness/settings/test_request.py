"""Devices: what "auto" finds, and what is refused."""

import pytest
import torch

from harness.runs.cost import forget_peak_memory, peak_memory_mb
from harness.settings.request import check_device
from leaderboard.config import ConfigError
from pezoo.kernels.backends import fastest


@pytest.mark.parametrize(
    ("cuda", "mps", "found"),
    [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")],
)
def test_auto(cuda, mps, found, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert check_device("auto") == found


def test_a_device_that_is_not_there():
    with pytest.raises(ConfigError, match=r"'mps:7' cannot be used here: .* cpu, cuda or mps\)"):
        check_device("mps:7")
    with pytest.raises(ConfigError, match="unknown device 'mpss'; did you mean mps"):
        check_device("mpss")


def test_kernels_on_apples_gpu_are_torchs():
    found = {kernel: fastest(kernel, "mps") for kernel in ("attention", "histogram", "spectral")}
    assert found == {"attention": "reference", "histogram": "reference", "spectral": "parallel"}


def test_memory_on_apples_gpu(monkeypatch):
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 3 << 20)
    forget_peak_memory("mps")
    assert peak_memory_mb("mps") == 3.0
