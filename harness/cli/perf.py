"""`pezoo perf`: measure the cost of encodings."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from harness.cli import options

if TYPE_CHECKING:
    from experiment.config import RunConfig


@click.command()
@click.option("--pe", help='Encodings, for example "rope,prism"; all by default.')
@options.protocol
@click.option("--task", default="copy", show_default=True, help="One task.")
@click.option("--length", type=click.IntRange(min=1), help="The longest training length if unset.")
@click.option("--batch", type=click.IntRange(min=1), help="The protocol's if unset.")
@click.option("--baseline", default="rope", show_default=True, help="Encoding that ratios are to.")
@options.settings
@click.option("--repeats", type=click.IntRange(min=1), default=15, show_default=True)
@click.option("--threads", type=options.THREADS, default=1, show_default=True)
@options.device(default="cpu")
@options.form
def command(**typed: Any) -> None:
    """Time encodings in training and decoding, side by side, at a protocol's settings.

    All take turns in one process; a ratio compares times of one round. docs/perf.md explains the
    columns.
    """
    # torch's profiler, which counts memory, reads these when torch is imported, and logs to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    import torch

    from harness.perf.measure import measure
    from harness.settings.protocol import check_device

    asked = SimpleNamespace(**typed)
    asked.device = check_device(asked.device)
    torch.set_num_threads(asked.threads)
    configs, length, baseline = _configs(asked)
    click.echo(measure(configs, length, asked.repeats, baseline).render(asked.format))


def _fits(name: str, causal: bool) -> bool:
    """Return whether an encoding can run; a plug-in that cannot be imported is named."""
    from pezoo.registry import entries
    from pezoo.spec import SpecError

    try:
        cls = entries()[name].load()
    except SpecError as error:
        click.echo(f"left out: {error}", err=True)
        return False
    return causal or not cls.causal_only


def _configs(asked: SimpleNamespace) -> tuple[list[RunConfig], int, str]:
    """Return the runs, the length, and the label of the baseline, which is one of the runs.

    Errors: those of `parse_request`.
    """
    from harness import tasks
    from harness.settings.protocol import load_protocol, parse_request
    from pezoo.registry import check, names, parse

    task = tasks.make(asked.task)  # one, where a request may have several
    baseline = check(parse(asked.baseline))
    pe = asked.pe
    if not pe:
        causal = load_protocol(asked.protocol, asked.set).track != "encoder"
        pe = ",".join(name for name in names() if _fits(name, causal))
    request = parse_request(pe, asked.task, asked.protocol, "0", asked.set)
    if str(baseline) not in map(str, request.encodings):
        request.encodings.insert(0, baseline)
    configs = request.configs(asked.device, "auto")
    if asked.batch is not None:
        configs = [config.replace_train(batch=asked.batch) for config in configs]
    length = asked.length or task.lengths(*configs[0].train.lengths)[-1]
    return configs, length, str(baseline)
