"""From what a user typed to the configurations of runs, and the sizes of their tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from experiment.config import (
    ATTENTION,
    DEVICES,
    ConfigError,
    Eval,
    Model,
    Protocol,
    RunConfig,
    Start,
    Train,
    encoding_version,
)
from experiment.protocol import read_protocol
from experiment.seeds import parse_seeds
from harness import tasks
from pezoo import spec as text_form
from pezoo.registry import check, entries, parse_list, whole
from pezoo.spec import Spec, bare, unknown

if TYPE_CHECKING:
    from harness.tasks.base import Task


def load_protocol(name: str, overrides: tuple[str, ...] = ()) -> Protocol:
    """Read a protocol as `experiment.protocol.read_protocol` does, and check its tasks' names."""
    return read_protocol(name, overrides, _task_name)


def _task_name(name: str) -> str:
    """Return the canonical name of a task. Errors: ConfigError."""
    try:
        canonical = tasks.canonical(name)
        if canonical != bare(canonical):
            tasks.make(canonical)
        return canonical
    except ValueError as error:
        raise ConfigError(str(error)) from error


def resolve(
    protocol: Protocol, task: str, encoding: Spec, seed: int, device: str, attention: str
) -> RunConfig:
    """Return the configuration of one run. Errors: ConfigError, TaskError or SpecError."""
    task, made = tasks.canonical(task), tasks.make(task)
    model, train, test = protocol.settings(task)
    low, high = train.lengths
    if not made.lengths(low, high):
        raise ConfigError(
            f"task {task} has no instance of length {low} to {high}; nearest: {made.nearest(high)}"
        )
    if protocol.track == "text":
        _check_text(protocol.name, task, made, train, test)
    if train.draw == "instances" and made.instances(made.lengths(low, high)[0]) is None:
        raise ConfigError(
            f'train.draw = "instances" needs a task that lists its instances; {task} does not: '
            f'take "lengths"'
        )
    if protocol.track == "encoder" and (train.context or test.window):
        raise ConfigError(
            f"train.context and eval.window are for decoders; protocol {protocol.name} trains "
            f"encoders"
        )
    for name in filter(None, (test.set, *(one.name for one in test.sets))):
        made.check_test_set(name)
    start = protocol.start and _start(protocol.start, model, task, seed, device, attention)
    spec = check(protocol.fill(task, encoding))
    for name in parts(spec):
        if protocol.track == "encoder" and entries()[name].load().causal_only:
            raise ConfigError(
                f"{name} needs a causal mask, and protocol {protocol.name} trains encoders"
            )
    return RunConfig(
        protocol=protocol.name,
        task=task,
        task_version=made.version,
        label=str(encoding),  # the names of the JSON
        encoding=str(spec),
        encoding_version=version_of(spec),
        seed=seed,
        device=device,
        attention=attention,
        track=protocol.track,
        start=start,
        model=model,
        train=train,
        eval=test,
    )


def _start(
    start: Start, model: Model, task: str, seed: int, device: str, attention: str
) -> RunConfig:
    """Return the run that runs with this model start from. Errors: as `resolve`."""
    (encoding,) = parse_list(start.encoding)
    config = resolve(load_start(start), task, encoding, seed, device, attention)
    for name, value in model:
        if value != (there := getattr(config.model, name)):
            raise ConfigError(
                f"model.{name} is {value}, and {there} in the run of {start.protocol} to start "
                f"from: set both, as --set 'start.set=[\"model.{name}={value}\"]'"
            )
    return config


@lru_cache(100)
def load_start(start: Start) -> Protocol:
    """Return the protocol of the run to start from. Errors: as `load_protocol`."""
    protocol = load_protocol(start.protocol, start.set)
    if protocol.start is not None:
        raise ConfigError(f"start.protocol {start.protocol} starts from another run itself")
    return protocol


def _check_text(protocol: str, task: str, made: Task, train: Train, test: Eval) -> None:
    """Check that a task and its settings suit the track of text. Errors: ConfigError."""
    if made.determined:
        raise ConfigError(
            f"track text scores how well a text is predicted; {task} has right answers: take "
            "track decoder, or a task without, such as text"
        )
    if test.top or train.context:
        raise ConfigError(
            "eval.top and train.context are for tasks with right answers; protocol "
            f"{protocol} is of text"
        )
    high = train.lengths[1]
    scored = max(made.max_tokens(n)[1] for n in (high, *test.lengths))
    if scored >= high:
        raise ConfigError(
            f"tests score the last {scored} tokens of {task}, also with the training length "
            f"alone as context: train.lengths must end above {scored}, got {high}"
        )


def parts(spec: Spec) -> Iterator[str]:
    """Yield the names of an encoding and of the encodings that it wraps, outermost first."""
    yield spec.name
    for inner in whole(spec).wrapped:
        yield from parts(inner)


def version_of(spec: Spec) -> int:
    """Return the version of an encoding and of those it wraps, as one number."""
    return encoding_version(entries()[name].load().version for name in parts(spec))


def token_count(task: Task, length: int) -> int:
    """Return the most tokens of an instance: prompt, answer and end."""
    return sum(task.max_tokens(length)) + 1


def sample_count(task: Task, test: Eval, length: int) -> int:
    """Return the most samples of a length: fewer if they are long, never below the minimum."""
    fitting = test.max_tokens // token_count(task, length)
    return max(test.min_samples, min(test.samples, fitting))


@dataclass(frozen=True)
class Request:
    """Encodings, tasks and seeds to compare by a protocol; only `configs` imports torch."""

    encodings: list[Spec]
    tasks: list[str]
    protocol: Protocol
    seeds: list[int]

    def configs(self, device: str, attention: str) -> list[RunConfig]:
        """Return every run, seed by seed, so that all encodings have early results.

        Errors: ConfigError for an unknown attention, for a task that has no instance of a test
        length, and for two encodings that are equal with the protocol's options.
        """
        if attention not in ATTENTION:
            raise ConfigError(unknown("attention", attention, ATTENTION))
        if attention in ("flex", "xformers") and device == "cpu":
            raise ConfigError(
                f"attention {attention} cannot train on a CPU: use sdpa, or --device cuda"
            )
        configs = [
            resolve(self.protocol, task, encoding, seed, device, attention)
            for task in self.tasks
            for seed in self.seeds
            for encoding in self.encodings
        ]
        typed: dict[str, str] = {}
        for config in configs[:: len(self.encodings)]:
            made = tasks.make(config.task)
            if not any(made.lengths(length, length) for length in config.eval.lengths):
                last = max(config.eval.lengths)
                raise ConfigError(
                    f"task {config.task} has no instance of a length in eval.lengths; nearest to "
                    f"{last}: {made.nearest(last)}"
                )
        for config in configs:
            first = typed.setdefault(config.spec, config.encoding)
            if first != config.encoding:
                raise ConfigError(
                    f"{first} and {config.encoding} are one encoding with the options that "
                    f"{self.protocol.name} gives: name it once"
                )
        return configs


def parse_request(
    pe: str, task: str, protocol: str, seeds: str | None, sets: tuple[str, ...]
) -> Request:
    """Check every part. Errors: SpecError, ConfigError or ValueError."""
    encodings = parse_list(pe)
    if swapped := [str(one) for one in encodings if one.name in tasks.names()]:
        raise ConfigError(f"--pe {swapped[0]} is a task: give it with --task, encodings with --pe")
    specs = [str(check(encoding)) for encoding in encodings]
    names = [tasks.check(str(spec)) for spec in text_form.parse_list(task)]
    for what, given in (("encoding", specs), ("task", names)):
        if len(set(given)) < len(given):
            raise ConfigError(f"one {what} is named twice: {', '.join(given)}")
    try:
        chosen = load_protocol(protocol, sets)
    except OSError as error:
        raise ConfigError(f"cannot read protocol {protocol[:80]!r}: {error.strerror}") from error
    return Request(encodings, names, chosen, parse_seeds(chosen.seeds if seeds is None else seeds))


def check_device(device: str) -> str:
    """Return the device; "auto" becomes cuda, mps or cpu, "cpu:0" cpu. Wrong names import no torch.

    Errors: ConfigError if the name is wrong or torch cannot use the device.
    """
    kind, colon, number = device.partition(":")
    if kind == "gpu":  # nearest in spelling is xpu
        raise ConfigError(f"unknown device {device!r}; did you mean cuda? (or cpu, mps, xpu)")
    names = ("auto", *DEVICES)
    if kind not in names or (colon and not re.fullmatch("[0-9]+", number)):
        raise ConfigError(f"{unknown('device', device, names)}; a second GPU is cuda:1")
    if kind == "cpu":
        if int(number or 0):
            raise ConfigError(f"device {device!r} does not exist: there is one CPU, cpu")
        return kind
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"device {device!r} cannot be used here: {reason} (choose auto or cpu)"
        ) from error
    return device
