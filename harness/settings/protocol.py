"""Settings: a protocol (a TOML file), and one run that it resolves to.

A run's identity is the hash of everything that could change its result. Where the same command
leads to the same hash, the run is continued or its finished result is shown.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from harness import tasks
from pezoo.registry import check, entries
from pezoo.spec import Spec, parse, unknown

PROTOCOLS = Path(__file__).parent / "protocols"


class ConfigError(ValueError):
    """A setting that does not exist or cannot have that value."""


class Model(BaseModel):
    """The backbone's sizes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layers: PositiveInt
    heads: PositiveInt
    width: PositiveInt
    mlp_ratio: PositiveInt = 4
    dropout: float = Field(0.0, ge=0, lt=1)
    tie_embeddings: bool = True
    vocab: PositiveInt = 64


class Stage(BaseModel):
    """One stage of the length curriculum: up to `until` (a share of all steps) train to `max`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    until: float = Field(gt=0, le=1)
    max: PositiveInt


class Train(BaseModel):
    """Optimisation. One length per batch, uniform over `lengths`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    steps: PositiveInt
    batch: PositiveInt
    lengths: tuple[PositiveInt, PositiveInt]
    curriculum: tuple[Stage, ...] = ()
    lr: PositiveFloat = 1e-3
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = Field(0.01, ge=0)
    warmup: int = Field(200, ge=0)
    schedule: Literal["cosine", "constant"] = "cosine"
    floor: float = Field(0.05, ge=0, le=1)
    clip: PositiveFloat = 1.0
    checkpoint_every: PositiveInt = 250
    precision: Literal["float32", "bf16"] = "float32"  # bf16: autocast in training
    compile: bool = False  # train through torch.compile; see `harness.model.compiled`

    @model_serializer(mode="wrap")
    def _plain(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `precision` and `compile` where they are usual: runs keep their identity."""
        values: dict[str, Any] = handler(self)
        if self.precision == "float32":
            del values["precision"]
        if not self.compile:
            del values["compile"]
        return values


class Eval(BaseModel):
    """Evaluation on a held-out set per length."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    lengths: tuple[PositiveInt, ...]
    samples: PositiveInt = 128
    min_samples: PositiveInt = 32
    max_tokens: PositiveInt = 20_000  # per length: beyond it fewer samples, never under min_samples
    every: PositiveInt = 250
    validation_samples: PositiveInt = 32  # per training length, to choose the best checkpoint
    top: int = Field(0, ge=0)  # also average the top N evaluations, each over all lengths
    examples: Literal["test", "tuning"] = "test"  # "tuning": a set apart, to choose settings by

    @model_serializer(mode="wrap")
    def _plain(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `examples` where they are the usual ones: runs keep their identity."""
        values: dict[str, Any] = handler(self)
        if self.examples == "test":
            del values["examples"]
        return values


class TaskSettings(BaseModel):
    """What a protocol changes for one task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    train_lengths: tuple[PositiveInt, PositiveInt] | None = None
    eval_lengths: tuple[PositiveInt, ...] | None = None
    curriculum: tuple[Stage, ...] | None = None
    encodings: dict[str, dict[str, Any]] = {}


class Protocol(BaseModel):
    """Named settings. `encodings` gives options to an encoding by name; typed options win."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    description: str
    seeds: str
    model: Model
    train: Train
    eval: Eval
    encodings: dict[str, dict[str, Any]] = {}
    tasks: dict[str, TaskSettings] = {}


class RunConfig(BaseModel):
    """Everything that decides the result of one run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    protocol: str
    task: str
    task_version: int
    label: str  # the encoding as typed
    encoding: str  # with the protocol's options filled in
    encoding_version: int
    seed: int = Field(ge=0)
    device: str
    attention: str
    model: Model
    train: Train
    eval: Eval

    @property
    def hash(self) -> str:
        """16 hex digits over the canonical JSON of all fields."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def family(self) -> RunConfig:
        """This run but for its seed and learning rate: equal for runs that can form one stack."""
        train = self.train.model_copy(update={"lr": 1.0})
        return self.model_copy(update={"seed": 0, "protocol": "", "train": train})


def protocol_names() -> list[str]:
    """The protocols that come with the harness."""
    return sorted(path.stem for path in PROTOCOLS.glob("*.toml"))


def load_protocol(name: str, overrides: tuple[str, ...] = ()) -> Protocol:
    """A protocol by name or by the path of a TOML file, with `key.sub=value` overrides.

    Errors: ConfigError says which key or value is wrong and what is nearest.
    """
    path = Path(name) if name.endswith(".toml") else PROTOCOLS / f"{name}.toml"
    if not path.is_file():
        raise ConfigError(unknown("protocol", name, protocol_names()))
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"protocol {path} is not TOML: {error}") from error
    raw.setdefault("name", path.stem)
    for override in overrides:
        _override(raw, override)
    if overrides:
        raw["name"] = f"{raw['name']}+{_short_hash(raw)}"
    try:
        return Protocol.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"protocol {name}, {where}: {first['msg']}") from error


def resolve(
    protocol: Protocol, task: str, encoding: Spec, seed: int, device: str, attention: str
) -> RunConfig:
    """One run of a protocol. Errors: ConfigError, TaskError or SpecError."""
    settings = protocol.tasks.get(task, TaskSettings())
    train, evaluation = protocol.train, protocol.eval
    low, high = settings.train_lengths or train.lengths
    if settings.curriculum is not None:
        train = train.model_copy(update={"curriculum": settings.curriculum})
    train = train.model_copy(update={"lengths": (low, high)})
    if settings.eval_lengths:
        evaluation = evaluation.model_copy(update={"lengths": settings.eval_lengths})
    made = tasks.make(task)
    if not made.lengths(low, high):
        raise ConfigError(f"task {task} has no instance of length {low} to {high}")
    options = {
        name: {**protocol.encodings.get(name, {}), **settings.encodings.get(name, {})}
        for name in {**protocol.encodings, **settings.encodings}
    }
    full = check(_with_options(encoding, options))
    return RunConfig(
        protocol=protocol.name,
        task=task,
        task_version=made.version,
        label=str(encoding),
        encoding=str(full),
        encoding_version=_version(full),
        seed=seed,
        device=device,
        attention=attention,
        model=protocol.model,
        train=train,
        eval=evaluation,
    )


def parse_seeds(text: str) -> list[int]:
    """ "0-2,7" -> [0, 1, 2, 7]. Errors: ConfigError."""
    seeds: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise ConfigError(f"cannot read seeds {text!r}: expected for example 0-2 or 0,3,7")
        span = range(int(low), int(high if dash else low) + 1)
        if not span or len(span) > 10_000:
            raise ConfigError(f"seeds {part.strip()!r} are {len(span)} seeds: expected 1 to 10000")
        seeds.extend(span)
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds {text!r} name a seed twice")
    return seeds


def _with_options(spec: Spec, options: dict[str, dict[str, Any]]) -> Spec:
    inner = spec.inner and _with_options(spec.inner, options)
    return Spec(spec.name, {**options.get(spec.name, {}), **spec.options}, inner)


def _version(spec: Spec) -> int:
    """One number for the versions of an encoding and of what it wraps."""
    cls = entries()[spec.name].load()
    inner = spec.inner or (parse(cls.wraps) if cls.wraps else None)
    return cls.version if inner is None else cls.version * 1000 + _version(inner)


def _override(raw: dict[str, Any], text: str) -> None:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"cannot read --set {text!r}: expected key=value, e.g. train.steps=500")
    *path, last = key.strip().split(".")
    table = raw
    for name in path:
        if not isinstance(table.get(name), dict):
            if len(path) > 1 or name not in ("encodings", "tasks"):
                raise ConfigError(
                    unknown(
                        "setting", name, sorted(k for k, v in raw.items() if isinstance(v, dict))
                    )
                )
            table[name] = {}
        table = table[name]
    allowed = _fields(path)
    if allowed is not None and last not in allowed:
        where = f"setting in {'.'.join(path) or 'the protocol'}"
        raise ConfigError(unknown(where, last, sorted(allowed)))
    try:
        table[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = value


def _fields(path: list[str]) -> list[str] | None:
    """The settings below a path, or None where any name may stand."""
    models = {"model": Model, "train": Train, "eval": Eval}
    if not path:
        return list(Protocol.model_fields)
    return list(models[path[0]].model_fields) if path[0] in models else None


def _short_hash(raw: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(raw, sort_keys=True, default=str).encode()).hexdigest()[:6]
