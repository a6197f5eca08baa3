"""`pezoo`, also as `python -m harness`; under torchrun process 0 is, and the others train with it.

Ctrl-C ends the process where it is: an exception would print a traceback of some import, or be lost
in one. While runs train, `harness.cli.progress` and the engine handle it.
"""

import _signal  # `signal` takes 10 ms to import

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import os
import signal
from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted; run the same command to continue\n")
    os._exit(128 + number)


def run() -> None:
    """Run the command line, or help another process of torchrun to train."""
    from harness.cli.main import main

    ours = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        if ours:
            signal.signal(signal.SIGINT, _leave)
        main()
        return
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # hides warnings about unused parameters
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
