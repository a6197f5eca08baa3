"""One run on several processes: `torchrun --nproc-per-node 2 -m harness bench ...`.

`python -m harness.engine.ddp` in place of `torchrun` ends with the exit code of `pezoo bench`.

Process 0 is `pezoo bench`; the others help with every run that it trains. All draw the same batch,
and each computes its rows in one or more parts. Weighted by their answer tokens, the gradients of
the parts add up to those of the whole batch: the result is that of one process, except for the
rounding of sums.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from experiment.config import RunConfig
from harness import engine
from harness.data.sequences import Sequences
from harness.engine import EngineError, check_kind
from harness.engine.scheduler import Interrupted, interrupts, pressed
from harness.runs.cost import keep_heap
from harness.runs.events import ReportOf
from harness.runs.run import last_event
from harness.training.trainer import Diverged, Trainer, start
from pezoo.base import PositionError

PATIENCE = timedelta(days=2)  # the others wait while process 0 evaluates


class Engine(engine.Engine):
    """The processes that torchrun started."""

    def device(self, requested: str) -> str:
        """Return the device of every process; cuda is one GPU for each. Errors: EngineError."""
        if not dist.is_initialized():
            raise EngineError("engine ddp: start torchrun --nproc-per-node 2 -m harness bench ...")
        check_kind("torchrun", requested)
        if requested == "cuda" and not torch.cuda.is_available():
            raise EngineError("device 'cuda' cannot be used here (choose auto or cpu)")
        return "cuda" if torch.cuda.is_available() and requested != "cpu" else "cpu"

    def jobs(self, configs: Sequence[RunConfig]) -> int:
        """Return 1: all processes train the same run."""
        return 1

    def run_all(
        self, configs: Sequence[RunConfig], root: Path, command: str, report: ReportOf
    ) -> None:
        """Execute the runs one after the other.

        Errors: EngineError for a batch with too few rows; KeyboardInterrupt after Ctrl-C, SIGTERM
        or the end of torchrun, when a checkpoint is saved; SystemExit if a run ended in process 0
        alone, because the others wait for it.
        """
        parts = dist.get_world_size() * (self.options.accumulate or 1)
        for config in configs:
            if (rows := config.train.batch) < parts:
                raise EngineError(f"train.batch {rows} cannot be split into {parts} parts")
        torch.set_num_threads(self.options.threads or torch.get_num_threads())
        with interrupts(signal.SIGINT, signal.SIGTERM) as interrupt:
            asked = _ending(interrupt)
            team = Team(self.options.accumulate or 1, asked)
            for run, config in enumerate(configs):
                here = partial(report, run)
                stop = lambda: team.stopping  # noqa: E731
                here(last_event(config, root, command, here, stop, team.begin))
                if team.inside:
                    dist.destroy_process_group()
                    sys.exit(1)
                if number := asked():
                    raise Interrupted(number)


def _ending(interrupt: int) -> Callable[[], int]:
    """Return a function that returns the number of the first signal, 0 before there is one.

    The end of torchrun counts as SIGTERM.
    """
    parent, came = os.getppid(), 0

    def asked() -> int:
        nonlocal came
        orphan = signal.SIGTERM if os.getppid() != parent else 0
        came = came or pressed(interrupt) or orphan
        return came

    return asked


@dataclass
class Team:
    """The state that the processes share; `interrupted` in process 0 is true after a signal."""

    accumulate: int = 1
    interrupted: Callable[[], int] = lambda: 0
    stopping: bool = False
    inside: bool = False  # all processes have begun a run, which none has ended

    def begin(self, config: RunConfig) -> Parallel:
        """Return a trainer for this run."""
        spread = {"processes": dist.get_world_size(), "accumulate": self.accumulate}
        return Parallel(**vars(start(config)) | {"team": self, "spread": spread})


@dataclass
class Parallel(Trainer):
    """A Trainer that computes its share of every batch. The first step calls the others to help."""

    team: Team = field(default_factory=Team)
    shared: DistributedDataParallel | None = None

    def backward(self) -> Tensor:
        if self.shared is None:
            state, threads = self.optimiser.state_dict(), torch.get_num_threads()
            _broadcast((self.config, self.step, state, self.team.accumulate, threads))
            self.join()
        try:
            return self._backward()
        except (Diverged, PositionError):  # in all processes
            self.team.inside = False
            raise

    def advance(self) -> Tensor:
        loss = super().advance()
        if self.step == self.last or self.team.stopping:
            self.team.inside = False
        return loss

    def join(self) -> None:
        """Take the weights of process 0. From here on every process must take every step."""
        self.shared = DistributedDataParallel(_Loss(self), find_unused_parameters=True)
        self.team.inside = True

    def _backward(self) -> Tensor:
        """Compute the gradients, and share the loss and the wish to stop in one message."""
        assert self.shared is not None
        batch, length = self.draw()
        rows, size = len(batch.inputs), dist.get_world_size()
        parts, mine = size * self.team.accumulate, dist.get_rank() * self.team.accumulate
        edges = [rows * part // parts for part in range(parts + 1)]
        self.optimiser.zero_grad(set_to_none=True)
        total = torch.zeros(3, dtype=torch.float64, device=batch.inputs.device)
        for part in range(mine, mine + self.team.accumulate):
            own = batch.rows(edges[part], edges[part + 1])
            share = own.answer.sum() / batch.answer.sum()
            last = part == mine + self.team.accumulate - 1
            with nullcontext() if last else self.shared.no_sync():
                loss = self.shared(own, length) * share
                (loss * size).backward()  # DDP takes the mean over the processes
            total[0] += loss.detach()
        total[1] = bool(self.team.interrupted())
        total[2] = 0 if dist.get_rank() else self.ending  # process 0 validates
        dist.all_reduce(total)
        self.team.stopping, self.ending = bool(total[1]), int(total[2])
        self.losses.note(self.step, total[0])
        self.losses.read()
        return total[0]


class _Loss(nn.Module):
    """The loss as one module, because DDP must see every use of a parameter."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.model, self.loss = trainer.model, trainer.loss

    def forward(self, batch: Sequences, length: int) -> Tensor:
        return self.loss(batch, length)


def enter() -> None:
    """Join the group that torchrun's environment describes."""
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=PATIENCE)


def leave() -> None:
    """Let the other processes end; called by process 0."""
    if dist.is_initialized():
        _broadcast(None)
        dist.destroy_process_group()


def serve() -> None:
    """Help with every run of process 0 until it leaves; called by the other processes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # process 0 handles them
        signal.signal(number, signal.SIG_IGN)
    keep_heap()
    while (job := _broadcast(None)) is not None:
        config, step, optimiser, accumulate, threads = job
        torch.set_num_threads(threads)
        team = Team(accumulate)
        trainer = team.begin(config)
        trainer.optimiser.load_state_dict(optimiser)
        trainer.step = step
        trainer.join()
        with suppress(Diverged, PositionError):
            while team.inside:
                trainer.advance()
    dist.destroy_process_group()


def _broadcast(message: Any) -> Any:
    """Return the message of process 0, in every process."""
    box = [message]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


def launch() -> None:
    """Run torchrun, and exit as `pezoo bench` does; torchrun exits with 1 and a traceback."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    try:
        main()
    except SignalException as error:
        sys.exit(128 + error.sigval)
    except ChildFailedError as error:
        code = error.get_first_failure()[1].exitcode
        sys.exit(code if code > 0 else 128 - code)  # -9: a process was killed


if __name__ == "__main__":
    launch()
