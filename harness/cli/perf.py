"""`pezoo perf`: what encodings cost."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from harness.cli.bench import FORMATS

if TYPE_CHECKING:
    from experiment.config import RunConfig
    from harness.perf.report import Report


@dataclass(frozen=True)
class PerfOptions:
    """The options as typed; each is described where click declares it."""

    pe: str | None
    protocol: str
    task: str
    length: int | None
    batch: int | None
    baseline: str
    set: tuple[str, ...]
    harness: bool
    repeats: int
    threads: int
    device: str
    format: str


@click.command()
@click.option("--pe", help='Encodings, for example "rope,prism"; all by default.')
@click.option("--protocol", default="quick", show_default=True, help="A name or a TOML file.")
@click.option("--task", default="copy", show_default=True, help="One task.")
@click.option("--length", type=click.IntRange(min=1), help="The longest training length if unset.")
@click.option("--batch", type=click.IntRange(min=1), help="The protocol's if unset.")
@click.option("--baseline", default="rope", show_default=True, help="What ratios are to.")
@click.option("--set", multiple=True, help="Change a setting: --set model.width=128.")
@click.option("--harness", is_flag=True, help="Time training steps alone, beside a reference.")
@click.option("--repeats", type=click.IntRange(min=1), default=15, show_default=True)
@click.option("--threads", type=click.IntRange(1, 1024), default=1, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="auto, cpu, cuda, cuda:N or mps.")
@click.option("--format", type=click.Choice(FORMATS), default="table", show_default=True)
def command(**options: Any) -> None:
    """Time encodings in training and decoding at a protocol's settings, side by side.

    All take turns in one process; a ratio compares times of one round. docs/perf.md says what each
    column means.
    """
    # The profiler that counts memory would log to stderr; it reads these when torch is imported.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from harness.perf import timing
    from harness.settings.request import check_device

    typed = PerfOptions(**options)
    typed = replace(typed, device=check_device(typed.device))
    with timing.threads(typed.threads):
        report = (_throughput if typed.harness else _encodings)(typed)
    click.echo(report.render(typed.format))


def _encodings(options: PerfOptions) -> Report:
    from harness.perf import encodings

    configs, length, baseline = _configs(options)
    return encodings.measure(configs, length, options.repeats, baseline)


def _throughput(options: PerfOptions) -> Report:
    """At the reference's sizes, unless others are typed."""
    from harness.perf import throughput
    from harness.perf.reference import reference

    known = reference()
    pe, settings = options.pe or ",".join(known.cpu_seconds), (*known.settings, *options.set)
    configs, length, baseline = _configs(replace(options, pe=pe, set=settings))
    report = throughput.measure(configs, length, options.repeats, baseline, known)
    report.settings["reference"] = known.source
    return report


def _configs(options: PerfOptions) -> tuple[list[RunConfig], int, str]:
    """The runs, the length, and the label of the baseline, which is one of the runs.

    Errors: those of `parse_request`.
    """
    from harness import tasks
    from harness.settings.protocol import load_protocol
    from harness.settings.request import parse_request
    from pezoo.registry import check, entries, names
    from pezoo.spec import parse

    task = tasks.make(options.task)  # one, where a request may have several
    baseline = check(parse(options.baseline))
    pe = options.pe
    if not pe:
        causal = load_protocol(options.protocol, options.set).track == "decoder"
        pe = ",".join(name for name in names() if causal or not entries()[name].load().causal_only)
    request = parse_request(pe, options.task, options.protocol, "0", options.set)
    if str(baseline) not in map(str, request.encodings):
        request.encodings.insert(0, baseline)
    configs = request.configs(options.device, "auto")
    if options.batch is not None:
        configs = [config.replace_train(batch=options.batch) for config in configs]
    length = options.length or task.lengths(*configs[0].train.lengths)[-1]
    return configs, length, str(baseline)
