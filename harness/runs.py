"""One run's folder: runs/<config hash>/.

    config.json          what was asked
    ckpt-00000750.*      model (safetensors) and optimiser (pt) after that step, the last two kept
    checkpoint.json      which steps are whole, the SHA-256 of both files, the learning curve
    best.safetensors     the model that did best on the training lengths
    result.json          the record; written last
    DONE                 the SHA-256 of result.json

Whoever holds the lock is the only writer. A checkpoint counts once checkpoint.json names it with
matching checksums; a damaged one is passed over for the one before.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors.torch import load, save

from harness.config import RunConfig
from harness.files import read_json, write, write_json
from harness.train import Trainer

KEEP = 2


class RunFolder:
    """The folder of one configuration below `root`."""

    def __init__(self, root: Path, config: RunConfig) -> None:
        self.config = config
        self.path = root / config.hash
        self.path.mkdir(parents=True, exist_ok=True)

    def lock(self) -> FileLock:
        """Held by the process that trains this run; the system frees it when that dies."""
        return FileLock(self.path / ".lock", timeout=0)

    def result(self) -> dict[str, Any] | None:
        """The finished record, or None when there is none or it is damaged."""
        return finished(self.path)

    def finish(self, record: dict[str, Any]) -> None:
        digest = write_json(self.path / "result.json", record)
        write(self.path / "DONE", digest.encode())

    def clear(self) -> None:
        """Forget everything but the lock."""
        for path in self.path.iterdir():
            if path.name != ".lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def save(self, trainer: Trainer, curve: dict[str, Any]) -> None:
        """A checkpoint after `trainer.step` steps, and the learning curve so far."""
        stem = f"ckpt-{trainer.step:08d}"
        buffer = io.BytesIO()
        torch.save(trainer.optimiser.state_dict(), buffer)
        hashes = {
            f"{stem}.safetensors": self.save_model(f"{stem}.safetensors", trainer),
            f"{stem}.pt": write(self.path / f"{stem}.pt", buffer.getvalue()),
        }
        index = read_json(self.path / "checkpoint.json") or {"checkpoints": []}
        kept = [c for c in index["checkpoints"] if c["step"] != trainer.step][-(KEEP - 1) :]
        kept.append({"step": trainer.step, "files": hashes, "curve": curve})
        write_json(self.path / "checkpoint.json", {"checkpoints": kept})
        names = {name for c in kept for name in c["files"]}
        for path in self.path.glob("ckpt-*"):
            if path.name not in names:
                path.unlink()

    def restore(self, trainer: Trainer) -> dict[str, Any] | None:
        """Load the newest whole checkpoint into the trainer; its learning curve, or None."""
        index = read_json(self.path / "checkpoint.json") or {"checkpoints": []}
        for checkpoint in reversed(index["checkpoints"]):
            stem = f"ckpt-{checkpoint['step']:08d}"
            model, optimiser = (
                self._verified(name, checkpoint["files"][name])
                for name in (f"{stem}.safetensors", f"{stem}.pt")
            )
            if model is None or optimiser is None:
                warnings.warn(
                    f"{self.path}: checkpoint {checkpoint['step']} is damaged, taking an older one",
                    stacklevel=2,
                )
                continue
            trainer.model.load_state_dict(load(model))
            state = torch.load(io.BytesIO(optimiser), weights_only=True, map_location="cpu")
            trainer.optimiser.load_state_dict(state)
            trainer.step = checkpoint["step"]
            return checkpoint["curve"]
        return None

    def save_model(self, name: str, trainer: Trainer) -> str:
        """The model's weights as one safetensors file; its SHA-256."""
        state = {k: v.detach().cpu().contiguous() for k, v in trainer.model.state_dict().items()}
        return write(self.path / name, save(state))

    def load_model(self, name: str, sha256: str, trainer: Trainer) -> bool:
        """Load weights that have that checksum; False when they are missing or damaged."""
        content = self._verified(name, sha256)
        if content is not None:
            trainer.model.load_state_dict(load(content))
        return content is not None

    def _verified(self, name: str, sha256: str) -> bytes | None:
        try:
            content = (self.path / name).read_bytes()
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == sha256 else None


def finished(path: Path) -> dict[str, Any] | None:
    """The record in a run's folder, if it is whole."""
    try:
        content = (path / "result.json").read_bytes()
        done = (path / "DONE").read_text(encoding="utf-8")
    except OSError:
        return None
    if hashlib.sha256(content).hexdigest() != done:
        return None
    return read_json(path / "result.json")
