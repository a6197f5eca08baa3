"""One run's folder: runs/<config hash>/.

    config.json          the settings
    tuning.json          the sweep that chose them, if one did
    ckpt-00000750.*      after that step: model (safetensors), optimiser (pt), and what names both
                         and the learning curve (json, written last); the last two steps are kept
    best-00000500.*      the model that did best on the training lengths
    result.json          the record
    DONE                 the SHA-256 of result.json, written last; missing after a failure that
                         might not happen again
    traceback.txt        where a failed run failed
    predictions.jsonl.gz what it answers to its test sets, with `pezoo bench --keep-predictions`

The holder of the lock is the only writer of all but tuning.json, which every process of the sweep
writes where it says something else. A checkpoint counts once its json is there; where it or a
file that it names does not match its checksum, the checkpoint before it is used. Checkpoint and
record name their run: in the folder of another one they do not count.
"""

import hashlib
import io
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from pydantic import ValidationError
from safetensors.torch import load, save
from torch import Tensor

from experiment.config import ConfigError, RunConfig
from experiment.files import flush_folder, is_alive
from harness.runs.files import (
    json_bytes,
    read,
    read_json,
    read_sealed,
    write,
    write_json,
    write_sealed,
)
from harness.runs.record import Draft, now
from harness.training.trainer import Trainer, lacking
from leaderboard.record.schema import Record
from leaderboard.record.tuning import MARK, Tuning

KEEP = 2
Curve = dict[str, Any]


class StartError(RuntimeError):
    """The run to start from is not trained yet ("busy"), or its weights are gone ("error")."""


def ending(config: RunConfig, curve: Curve) -> int:
    """Return the step from which the rate decays, by the validations of a curve."""
    points = ((point["step"], point.get("least") or 0.0) for point in curve["points"])
    return config.train.ending(points)


class RunFolder:
    """The folder of one configuration below `root`. Errors: ConfigError where it is a link."""

    def __init__(self, root: Path, config: RunConfig) -> None:
        self.config = config
        self.path = root / config.hash
        if self.path.is_symlink():
            raise ConfigError(f"{self.path} is a link: a run must be in {root} itself")

    def lock(self) -> FileLock:
        """Return the lock of the process that trains this run.

        The operating system releases it when that process dies.
        """
        self._make()
        return FileLock(self.path / ".lock", timeout=0)

    def open(self) -> None:
        """Prepare the folder for training: tidy it and write the settings."""
        self.tidy()
        write_json(self.path / "config.json", self.config.model_dump(mode="json"))

    def result(self) -> Record | None:
        """Return the finished record, None if there is none or it is damaged."""
        return finished(self.path)

    def finish(self, draft: Draft, final: bool = True) -> Record:
        """Write the record with its provenance; one that is not final is tried again.

        Errors: ValueError for a draft that is not a valid record; WriteError.
        """
        draft["provenance"] |= self.origin() | {"finished": now()}
        content = json_bytes(draft)
        try:
            record = Record.parse(content)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise ValueError(f"not a valid record: {field}: {first['msg']}") from error
        (self.path / "DONE").unlink(missing_ok=True)
        digest = write(self.path / "result.json", content)
        if final:
            write(self.path / "DONE", digest.encode())
        return record

    def note_tuning(self, tuning: dict[str, Any]) -> None:
        """Keep the sweep that chose these settings, for the provenance of the record."""
        self._make()
        if read_json(self.path / "tuning.json") != json.loads(json.dumps(tuning)):
            write_json(self.path / "tuning.json", tuning)

    def origin(self) -> dict[str, Any]:
        """Return the sweep that chose the settings, for the provenance; {} if there was none.

        A file beside a run that no sweep chose, or one that is not a sweep, is not used.
        """
        tuning = read_json(self.path / "tuning.json")
        if tuning is None or MARK not in self.config.protocol:
            return {}
        try:
            Tuning.model_validate_json(json.dumps(tuning))
        except ValidationError:
            warnings.warn(f"{self.path / 'tuning.json'} is not a sweep, not used", stacklevel=2)
            return {}
        return {"tuning": tuning}

    def clear(self) -> None:
        """Delete everything but the lock."""
        for path in self.path.iterdir():
            if path.name != ".lock":
                real = path.is_dir() and not path.is_symlink()
                shutil.rmtree(path) if real else path.unlink()

    def tidy(self) -> None:
        """Delete the unfinished files of killed processes; those of living ones stay."""
        for path in self.path.glob(".*"):
            writer = path.suffix[1:]
            busy = writer.isdecimal() and int(writer) != os.getpid() and is_alive(int(writer))
            if path.name != ".lock" and path.is_file() and not busy:
                path.unlink(missing_ok=True)

    def _make(self) -> None:
        if not self.path.is_dir():
            self.path.mkdir(parents=True, exist_ok=True)
            flush_folder(self.path.parent)

    def save(self, trainer: Trainer, curve: Curve) -> None:
        """Write a checkpoint after `trainer.step` steps, with the learning curve so far."""
        stem = _stem(trainer.step)
        buffer = io.BytesIO()
        torch.save(trainer.optimiser.state_dict(), buffer)
        files = {
            f"{stem}.safetensors": self._save_model(f"{stem}.safetensors", trainer),
            f"{stem}.pt": write(self.path / f"{stem}.pt", buffer.getvalue()),
        }
        if curve["best_step"] is not None:
            files[_best(curve["best_step"])] = curve["best_sha256"]
        index = {"run": self.config.hash, "files": files, "curve": curve}
        write_sealed(self.path / f"{stem}.json", index)
        self._drop_old(trainer.step)

    def restore(self, trainer: Trainer) -> Curve | None:
        """Load the newest whole checkpoint. Returns its learning curve, or None.

        Errors: RuntimeError for a whole checkpoint whose weights have other names or shapes.
        """
        for step in reversed(self.steps()):
            found = self._read(step) if step <= self.config.train.steps else None
            if found is None:
                text = f"{self.path}: checkpoint {step} is damaged or of another run, not used"
                warnings.warn(text, stacklevel=2)
                continue
            model, optimiser, curve = found
            trainer.model.load_state_dict(model)
            trainer.optimiser.load_state_dict(optimiser)
            trainer.step, trainer.ending = step, ending(self.config, curve)
            return curve
        return None

    def load_start(self, trainer: Trainer) -> dict[str, Any]:
        """Load the weights of the run to start from; return what the record says of them.

        Errors: StartError.
        """
        assert self.config.start is not None
        parent = RunFolder(self.path.parent, self.config.start)
        weights, sha256 = parent.weights()
        own = trainer.model.state_dict()
        missing, left = lacking(own, weights), lacking(weights, own)
        trainer.model.load_state_dict({n: weights[n] for n in weights if n not in left}, False)
        return {"run": parent.path.name, "weights": sha256, "missing": missing, "left": left}

    def weights(self) -> tuple[dict[str, Tensor], str]:
        """Return the weights after the last step of a finished run, and the SHA-256 of their file.

        Errors: StartError.
        """
        if (record := self.result()) is None or record.status == "failed":
            raise StartError("busy", f"{self.path}, which it starts from, is not trained")
        name = f"{_stem(record.last_step)}.safetensors"
        sha256 = (self._index(record.last_step) or {"files": {}})["files"].get(name, "")
        if (content := self._verified(name, sha256)) is None:
            raise StartError(
                "error", f"the last weights of {self.path} are gone or have changed: delete that "
                "folder, and the run is trained again",
            )  # fmt: skip
        return load(content), sha256

    def adopt(self, other: Path) -> None:
        """Copy the finished run from another folder, if its last weights are whole there."""
        source = RunFolder(other, self.config)
        if source.result() is None:
            return
        try:
            source.weights()
        except StartError as error:
            warnings.warn(f"not used: {error}", stacklevel=2)
            return
        with self.lock():
            last = {"result.json": 1, "DONE": 2}  # what was killed before is a run to go on with
            for path in sorted(source.path.iterdir(), key=lambda path: last.get(path.name, 0)):
                if path.is_file() and not path.name.startswith("."):
                    write(self.path / path.name, read(path))

    def save_best(self, trainer: Trainer) -> str:
        """Save the model as the best so far. Returns the SHA-256 of the file."""
        return self._save_model(_best(trainer.step), trainer)

    def load_best(self, trainer: Trainer, curve: Curve) -> None:
        """Load the weights of the best model. Errors: OSError where they are missing or damaged."""
        name = _best(curve["best_step"])
        content = self._verified(name, curve["best_sha256"])
        if content is None:
            raise OSError(f"{self.path / name} is missing or damaged")
        trainer.model.load_state_dict(load(content))

    def _save_model(self, name: str, trainer: Trainer) -> str:
        state = {k: v.detach().cpu().contiguous() for k, v in trainer.model.state_dict().items()}
        return write(self.path / name, save(state))

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, whole or not, in order."""
        names = (path.stem.removeprefix("ckpt-") for path in self.path.glob("ckpt-*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _index(self, step: int) -> dict[str, Any] | None:
        """Return what names the files of a checkpoint of this run, None if it is not whole."""
        index = read_sealed(self.path / f"{_stem(step)}.json")
        return index if index and index.get("run") == self.config.hash else None

    def _read(self, step: int) -> tuple[dict[str, Tensor], dict[str, Any], Curve] | None:
        """Return the model, optimiser and curve of a step, None if a file of it is not whole."""
        stem, index = _stem(step), self._index(step)
        if index is None:
            return None
        try:
            files = {name: self._verified(name, sha256) for name, sha256 in index["files"].items()}
            model, optimiser = files[f"{stem}.safetensors"], files[f"{stem}.pt"]
            if model is None or optimiser is None or None in files.values():
                return None
            state = torch.load(io.BytesIO(optimiser), weights_only=True, map_location="cpu")
            return load(model), state, index["curve"]
        except Exception:  # reading a damaged file may raise any exception
            return None

    def _drop_old(self, step: int) -> None:
        """Delete all but the newest checkpoints up to `step`; later ones are damaged."""
        kept: set[str] = set()
        for one in [s for s in self.steps() if s <= step][-KEEP:]:
            index = read_sealed(self.path / f"{_stem(one)}.json")
            kept |= {f"{_stem(one)}.json", *index["files"]} if index else set()
        for path in (*self.path.glob("ckpt-*"), *self.path.glob("best-*")):
            if path.name not in kept and (path.is_symlink() or not path.is_dir()):
                path.unlink()

    def _verified(self, name: str, sha256: str) -> bytes | None:
        try:
            content = read(self.path / name)
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest() == sha256 else None


def finished(path: Path) -> Record | None:
    """Return the record in the folder of a run, if it is whole, final and of this run."""
    file, seal = path / "result.json", path / "DONE"
    try:
        content, done = read(file), read(seal)
        whole = hashlib.sha256(content).hexdigest().encode() == done
    except OSError:
        whole = False
    if not whole:
        draft = read_json(file)
        if seal.exists() or (isinstance(draft, dict) and draft.get("status") == "done"):
            warnings.warn(f"{file} is damaged or without {seal.name}, not used", stacklevel=2)
        return None
    try:
        record = Record.parse(content)
    except ValueError:
        warnings.warn(f"{file} is not a record, not used", stacklevel=2)
        return None
    if record.config.hash != path.name:
        warnings.warn(f"{file} is of another run, not used", stacklevel=2)
        return None
    return record


def failed(path: Path) -> Record | None:
    """Return the record of a run that failed, final or not; None if there is no complete one."""
    try:
        record = Record.parse(read(path / "result.json"))
    except (OSError, ValueError):
        return None
    return record if record.status == "failed" and record.run == path.name else None


def _stem(step: int) -> str:
    return f"ckpt-{step:08d}"


def _best(step: int) -> str:
    return f"best-{step:08d}.safetensors"
