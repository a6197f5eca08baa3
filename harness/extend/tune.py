"""Tune a model for some steps with an encoding, from its own weights each time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn.functional import cross_entropy

from harness.data.seeds import generator
from harness.extend.subject import OfTransformers, Subject
from harness.runs.files import write

WARMUP, CLIP = 10, 1.0  # steps; of the gradient's norm
RANK, LORA_RATE = 8, 2e-4


@dataclass(frozen=True)
class Tuning:
    """`steps` of one text of `length` tokens; the rate is `Subject.rate`, or LORA_RATE."""

    steps: int
    length: int
    lora: bool = False


class Tuner:
    """Tunes every weight, or with LoRA matrices of rank 8 beside each linear layer.

    Errors: ValueError where LoRA is not possible.
    """

    def __init__(self, subject: Subject, settings: Tuning, tokens: Tensor) -> None:
        self.subject, self.settings, self.tokens = subject, settings, tokens
        self.rate = LORA_RATE if settings.lora else subject.rate
        self.add_lora = _lora(subject) if settings.lora else None

    @cached_property
    def start(self) -> dict[str, Tensor]:
        """Return the weights before tuning; adds LoRA's matrices, which change nothing yet."""
        if self.add_lora is not None:
            torch.manual_seed(0)
            self.add_lora()
        own = self._tuned().items()
        return {name: x.detach().clone() for name, x in own if "encoding." not in name}

    def tune(self, way: str, path: Path) -> Iterator[int]:
        """Tune, write what changed and yield each step's number."""
        self.subject.put(way)
        self.subject.module.load_state_dict(self.start, strict=False)
        own = self._tuned()
        optimiser = torch.optim.AdamW(own.values(), lr=self.rate, weight_decay=0.0)
        for step in range(1, self.settings.steps + 1):
            optimiser.zero_grad(set_to_none=True)
            self._loss(step).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(own.values(), CLIP)
            for group in optimiser.param_groups:
                group["lr"] = self.rate * min(1.0, step / WARMUP)
            optimiser.step()
            yield step
        optimiser.zero_grad(set_to_none=True)
        write(path, save({name: x.detach().cpu().contiguous() for name, x in own.items()}))

    def load(self, way: str, path: Path) -> None:
        """Put a way and what `tune` wrote."""
        self.subject.put(way)
        self.subject.module.load_state_dict(self.start | load_file(path), strict=False)

    def _tuned(self) -> dict[str, torch.nn.Parameter]:
        every = self.subject.module.named_parameters()
        lora = self.settings.lora
        return {n: x for n, x in every if not lora or "lora_" in n or "encoding." in n}

    def _loss(self, step: int) -> Tensor:
        draws, length = generator("extend", step), self.settings.length
        at = int(torch.randint(len(self.tokens) - length, (1,), generator=draws))
        device = next(self.subject.module.parameters()).device
        row = self.tokens[None, at : at + length].to(device)
        logits = self.subject.logits(row, length)[0, :-1]
        return cross_entropy(logits.float(), row[0, 1:])


def _lora(subject: Subject) -> Callable[[], object]:
    """Return what adds LoRA's matrices to the model. Errors: ValueError."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ValueError("--lora needs a package: pip install 'pezoo[extend]'") from error
    if not isinstance(subject, OfTransformers):
        raise ValueError("--lora is for models of transformers: leave it out for a run of pezoo")
    settings = LoraConfig(r=RANK, target_modules="all-linear")
    return partial(inject_adapter_in_model, settings, subject.module)
