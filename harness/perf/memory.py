"""Memory: the peak of one call, and the bytes that a cache keeps alive."""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], object], device: str) -> int:
    """Return the most bytes of tensors that live at one time because of a call.

    On a CPU, sum up every allocation and release that torch's profiler records; memory that a
    library allocates by itself is not seen. On CUDA, return the allocator's peak above what was
    allocated before; on Apple's GPU, the growth of what its driver holds for torch.
    """
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        return torch.cuda.max_memory_allocated(device) - before
    if device.startswith("mps"):
        torch.mps.synchronize()
        torch.mps.empty_cache()
        before = torch.mps.driver_allocated_memory()
        call()
        torch.mps.synchronize()
        return torch.mps.driver_allocated_memory() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    memory = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
    return max(accumulate((size for _, size in memory), initial=0))


def state_bytes(state: object) -> int:
    """Return the bytes of every storage that tensors in `state` keep alive, each counted once.

    A view counts as its whole storage, which cannot be freed.
    """
    storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in _tensors(state))}
    return sum(storages.values())


def _tensors(state: Any) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state]
    if is_dataclass(state):
        state = [getattr(state, field.name) for field in fields(state)]
    elif isinstance(state, Mapping):
        state = list(state.values())
    if isinstance(state, list | tuple):
        return [tensor for part in state for tensor in _tensors(part)]
    return []
