"""The cost of a run: seconds, CPU seconds, memory, tokens; and how memory is kept.

A cost is a dict of plain data that every checkpoint holds, so that costs add up over the sessions
of an interrupted run; work that was lost and repeated counts once.
"""

import ctypes
import os
import platform
import re
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from harness.training.trainer import Trainer

Cost = dict[str, Any]

# Of malloc.h and mman.h.
TRIM_THRESHOLD, MMAP_MAX, MADV_HUGEPAGE = -1, -4, 14
PAGE, STRETCH = 1 << 21, 1 << 28  # bytes: a huge page, and what of the heap is asked for in them
MALLOC_SETTINGS = ("GLIBC_TUNABLES", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")


def new() -> Cost:
    """Return zero cost, and the thread count, which every session keeps."""
    parts = {
        f"{part}_{unit}": 0.0 for part in ("train", "eval", "save") for unit in ("wall", "cpu")
    }
    return parts | {
        "data_wall": 0.0,
        "tokens": 0,
        "peak_memory_mb": 0.0,
        "sessions": 1,
        "threads": torch.get_num_threads(),
    }


def summary(trainer: Trainer, cost: Cost) -> dict[str, Any]:
    """Return the cost for a record: wall seconds, and CPU seconds of all threads.

    `data_share` is the share of training time spent on drawing batches.
    """
    model = trainer.model
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "encoding_parameters": sum(p.numel() for p in model.encoding.parameters()),
        "tokens": cost["tokens"],
        "train_seconds": round(cost["train_wall"], 2),
        "cpu_seconds": round(cost["train_cpu"], 2),
        "data_share": round(cost["data_wall"] / max(cost["train_wall"], 1e-9), 4),
        "steps_per_second": round(trainer.step / max(cost["train_wall"], 1e-9), 2),
        "eval_seconds": round(cost["eval_wall"], 2),
        "eval_cpu_seconds": round(cost["eval_cpu"], 2),
        "save_seconds": round(cost["save_wall"], 2),
        "peak_memory_mb": cost["peak_memory_mb"],
        "sessions": cost["sessions"],
    }


@contextmanager
def timed(cost: Cost, part: str) -> Iterator[None]:
    """Add the time inside to "train", "eval" or "save"."""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        cost[f"{part}_wall"] += time.perf_counter() - wall
        cost[f"{part}_cpu"] += time.process_time() - cpu


def note(cost: Cost, trainer: Trainer) -> None:
    """Note tokens, the time spent on batches, the highest peak of memory, and attention kernels."""
    cost |= {"tokens": trainer.tokens, "data_wall": trainer.data_seconds}
    cost["peak_memory_mb"] = max(cost["peak_memory_mb"], peak_memory_mb(trainer.config.device))
    known = cost.get("attention", {})
    cost["attention"] = {
        phase: sorted(ran.union(known.get(phase, ()))) for phase, ran in trainer.model.ran.items()
    }


def forget_peak_memory(device: str) -> None:
    """Reset the peak, so that a run is not charged for those before it in its process."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        return
    if device.startswith("mps"):
        torch.mps.empty_cache()
        return
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)  # returns free memory to the system, and huge pages with it
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # elsewhere than on Linux the peak is that of the process
        return


def peak_memory_mb(device: str) -> float:
    """Return the peak memory of the process in MB; on a GPU, the peak that torch allocated.

    On Apple's GPU, the memory that its driver holds for torch, freed memory included.
    """
    if device.startswith("cuda"):
        return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
    if device.startswith("mps"):
        return round(torch.mps.driver_allocated_memory() / 2**20, 1)
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        status = ""
    if found := re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE):
        return round(int(found[1]) / 2**10, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def keep_heap() -> bool:
    """Keep freed memory in glibc's heap for the next tensors, in huge pages.

    Otherwise glibc takes blocks above 32 MiB from the system and returns them at every step, with a
    fault for each of their pages: a third of PRISM's training step at 80 tokens. Huge pages save 3
    to 9 % of a step of the `quick` decoder (docs/findings/harness-speed.md).
    Returns False without glibc, and where the environment sets limits; nothing changes then.
    """
    libc = _glibc()
    if libc is None or any(name in os.environ for name in MALLOC_SETTINGS):
        return False
    if not (libc.mallopt(MMAP_MAX, 0) and libc.mallopt(TRIM_THRESHOLD, -1)):
        return False
    # Huge pages for the heap's next stretch of addresses; no memory is taken before it is used.
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    block = libc.malloc(STRETCH)
    if block:
        start = -(-block // PAGE) * PAGE
        libc.madvise(start, block + STRETCH - start, MADV_HUGEPAGE)
        libc.free(block)
    return True


def _glibc() -> Any:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
