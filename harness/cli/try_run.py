"""`pezoo try RUN`: type a prompt, see the answer."""

import click

from harness.cli import options
from harness.cli.show import config_of, find, restore, say, started
from harness.show import examples
from harness.training.trainer import Trainer


@click.command()
@click.argument("run")
@click.argument("prompts", nargs=-1)
@options.runs
def command(run: str, prompts: tuple[str, ...], runs: str) -> None:
    """Answer PROMPTS (or lines typed in) with a finished run's last checkpoint.

    pezoo try 3f2a 8349216=

    Where a prompt does not determine the answer, as in text, any prompt is continued.
    """
    config = config_of(find(run, runs))
    trainer = started(config)
    if not restore(trainer, config, runs):
        raise click.UsageError(f"run {config.hash} has no checkpoint left")
    blank = "\r\n" if " " in trainer.task.vocab.symbols else None
    for prompt in prompts:
        examples.read(trainer.task, prompt.strip(blank))  # validate all before answering
    say(f"{config.encoding} on {config.task}; for example {trainer.task.example}", err=True)
    for prompt in prompts or click.get_text_stream("stdin"):
        if prompt.strip():
            click.echo(answer(trainer, prompt.strip(blank)))


def answer(trainer: Trainer, prompt: str) -> str:
    """Return the prompt, the greedy answer and, where the task determines it, if that is right.

    Errors: TaskError.
    """
    task = trainer.task
    ids = examples.read(task, prompt)
    one = examples.answer(trainer.model, task, trainer.config, ids)
    written = [i for i in one.ids[0, one.prompt :].tolist() if i < len(task.vocab)]
    text = task.vocab.decode([*ids.tolist(), *written])
    if not task.determined:
        return text
    verdict = "right" if one.right else f"wrong, expected {one.truth}"
    return f"{text}   ({verdict})"
