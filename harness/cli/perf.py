"""`pezoo perf`: what encodings cost."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from harness.cli.bench import FORMATS

if TYPE_CHECKING:
    from harness.perf.report import Report
    from harness.settings.config import RunConfig


@click.command()
@click.option("--pe", help='Encodings, for example "rope,prism"; all by default.')
@click.option("--protocol", default="quick", show_default=True, help="A name or a TOML file.")
@click.option("--task", default="copy", show_default=True, help="One task.")
@click.option("--length", type=click.IntRange(min=1), help="The longest training length if unset.")
@click.option("--batch", type=click.IntRange(min=1), help="The protocol's if unset.")
@click.option("--baseline", default="rope", show_default=True, help="What ratios are to.")
@click.option("--set", "sets", multiple=True, help="Change a setting: --set model.width=128.")
@click.option("--harness", is_flag=True, help="Time training steps alone, beside a reference.")
@click.option("--repeats", type=click.IntRange(min=1), default=15, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--device", default="cpu", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
def command(
    pe: str | None,
    protocol: str,
    task: str,
    length: int | None,
    batch: int | None,
    baseline: str,
    sets: tuple[str, ...],
    harness: bool,
    repeats: int,
    threads: int,
    device: str,
    form: str,
) -> None:
    """Time encodings in training and decoding at a protocol's settings, side by side.

    All take turns in one process; a ratio compares times of one round. docs/perf.md says what each
    column means.
    """
    # The profiler that counts memory would log to stderr; it reads this when torch is imported.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    from harness.perf import timing
    from harness.settings.request import check_device

    device = check_device(device)
    with timing.threads(threads):
        asked = Asked(pe, protocol, task, length, batch, baseline, sets)
        report = (_throughput if harness else _encodings)(asked, repeats, device)
    click.echo(report.render(form))


@dataclass(frozen=True)
class Asked:
    """What was typed about the training to be timed."""

    pe: str | None
    protocol: str
    task: str
    length: int | None
    batch: int | None
    baseline: str
    sets: tuple[str, ...]

    def configs(self, device: str) -> tuple[list[RunConfig], int, str]:
        """The runs, the length, and the label of the baseline, which is one of the runs.

        Errors: those of the request.
        """
        from harness import tasks
        from harness.settings.request import parse_request as request
        from pezoo.registry import check, names
        from pezoo.spec import parse

        tasks.check(self.task)  # one, where request would take several
        against = check(parse(self.baseline))
        wanted = request(self.pe or ",".join(names()), self.task, self.protocol, "0", self.sets)
        if str(against) not in map(str, wanted.encodings):
            wanted.encodings.insert(0, against)
        configs = wanted.configs(device, "auto")
        if self.batch is not None:
            configs = [
                c.model_copy(update={"train": c.train.model_copy(update={"batch": self.batch})})
                for c in configs
            ]
        length = self.length or tasks.make(self.task).lengths(*configs[0].train.lengths)[-1]
        return configs, length, str(against)


def _encodings(asked: Asked, repeats: int, device: str) -> Report:
    from harness.perf import encodings

    configs, length, baseline = asked.configs(device)
    return encodings.measure(configs, length, repeats, baseline)


def _throughput(asked: Asked, repeats: int, device: str) -> Report:
    """At the reference's sizes, unless others are typed."""
    from harness.perf import throughput
    from harness.perf.reference import reference

    known = reference()
    asked = replace(asked, pe=asked.pe or ",".join(known.cpu_seconds))
    asked = replace(asked, sets=(*known.settings, *asked.sets))
    configs, length, baseline = asked.configs(device)
    report = throughput.measure(configs, length, repeats, baseline, known)
    report.settings["reference"] = known.source
    return report
