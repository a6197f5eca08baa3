"""`python -m harness` is `pezoo`; under torchrun process 0 is, and the others train with it."""

import os

from harness.cli.main import main


def run() -> None:
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        main()
        return
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # no word about unused parameters
    from harness.engine import ddp

    ddp.enter()
    if int(os.environ["RANK"]):
        ddp.serve()
        return
    try:
        main()
    finally:
        ddp.leave()


if __name__ == "__main__":
    run()
