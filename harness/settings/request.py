"""Check what a user typed, and list its runs."""

from __future__ import annotations

from dataclasses import dataclass

from experiment.config import ATTENTION, DEVICES, ConfigError, Protocol, RunConfig
from experiment.seeds import parse_seeds
from harness import tasks
from harness.settings.protocol import load_protocol, resolve
from pezoo.registry import check
from pezoo.spec import Spec, parse_list, unknown


@dataclass(frozen=True)
class Request:
    """Encodings, tasks and seeds to compare by a protocol; only `configs` imports torch."""

    encodings: list[Spec]
    tasks: list[str]
    protocol: Protocol
    seeds: list[int]

    def configs(self, device: str, attention: str) -> list[RunConfig]:
        """Return every run, seed by seed, so that all encodings have early results.

        Errors: ConfigError for an unknown attention, and for two encodings that are equal with the
        protocol's options.
        """
        if attention not in ATTENTION:
            raise ConfigError(unknown("attention", attention, ATTENTION))
        configs = [
            resolve(self.protocol, task, encoding, seed, device, attention)
            for task in self.tasks
            for seed in self.seeds
            for encoding in self.encodings
        ]
        labels: dict[str, str] = {}
        for config in configs:
            first = labels.setdefault(config.encoding, config.label)
            if first != config.label:
                raise ConfigError(
                    f"{first} and {config.label} are one encoding with the options that "
                    f"{self.protocol.name} gives: name it once"
                )
        return configs


def parse_request(
    pe: str, task: str, protocol: str, seeds: str | None, sets: tuple[str, ...]
) -> Request:
    """Check every part. Errors: SpecError, ConfigError or ValueError."""
    encodings = [check(spec) for spec in parse_list(pe)]
    names = [tasks.check(str(spec)) for spec in parse_list(task)]
    for what, given in (("encoding", [str(e) for e in encodings]), ("task", names)):
        if len(set(given)) < len(given):
            raise ConfigError(f"one {what} is named twice: {', '.join(given)}")
    try:
        chosen = load_protocol(protocol, sets)
    except OSError as error:
        raise ConfigError(f"cannot read protocol {protocol[:80]!r}: {error.strerror}") from error
    return Request(encodings, names, chosen, parse_seeds(chosen.seeds if seeds is None else seeds))


def check_device(device: str) -> str:
    """Return the device; "auto" becomes cuda, mps or cpu. Wrong names do not import torch.

    Errors: ConfigError if the name is wrong or torch cannot use the device.
    """
    kind, colon, number = device.partition(":")
    if kind == "gpu":  # nearest in spelling is xpu
        raise ConfigError(f"unknown device {device!r}; did you mean cuda? (or xpu, mps)")
    names = ("auto", *DEVICES)
    if kind not in names or (colon and not number.isdecimal()):
        raise ConfigError(f"{unknown('device', device, names)}; a second GPU is cuda:1")
    if device == "cpu":
        return device
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
            f"device {device!r} cannot be used here: {reason} (choose auto, cpu, cuda or mps)"
        ) from error
    return device
