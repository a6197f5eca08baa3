"""Settings of a protocol and of one run.

An encoding has three texts, under the same names everywhere:

- `encoding`: as the user typed it, "rope(base=500)"
- `spec`: with every option, those of the protocol and the defaults filled in
- `label`: as a table shows it, the shortest text that tells it from the table's others

In the JSON of a record's config, `encoding` is the field "label" and `spec` the field "encoding".

A run's identity is the hash of every setting that could change its result. A command that gives the
same hash continues the run or shows its finished result.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, reduce
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from pezoo.kernels import Attention
from pezoo.registry import expand
from pezoo.spec import Spec, bare

Length = Annotated[PositiveInt, Field(le=10**7)]
MOST = 1000  # lengths that are tested


def _spread(lengths: Any, info: ValidationInfo) -> Any:
    """ "41-500" in a protocol's file stands for all lengths from 41 to 500; a record lists them.

    Errors: ValueError for more than MOST.
    """
    if info.mode == "json" and isinstance(lengths, str):
        raise ValueError("expected a list of lengths")
    ends = re.fullmatch(r"(\d{1,7})-(\d{1,7})", lengths) if isinstance(lengths, str) else None
    if ends:
        span = range(int(ends[1]), int(ends[2]) + 1)
        if not span:
            raise ValueError(f"{lengths} ends before it begins: expected for example 5-10")
        if len(span) > MOST:
            raise ValueError(f"{lengths} are {len(span)} lengths: expected at most {MOST}")
        return tuple(span)
    return tuple(lengths) if isinstance(lengths, list) else lengths


SET_NAME = r"^[A-Za-z0-9][A-Za-z0-9_+-]{0,63}$"
Lengths = Annotated[
    tuple[Length, ...], Field(min_length=1, max_length=MOST), BeforeValidator(_spread)
]


DEVICES = ("cpu", "cuda", "mps", "xpu")
Device = Annotated[str, Field(pattern=rf"^({'|'.join(DEVICES)})(:[0-9]{{1,4}})?$")]
ATTENTION = get_args(Attention)


class ConfigError(ValueError):
    """A setting that does not exist or cannot have that value."""


class Settings(BaseModel):
    """Base class: checked and immutable. Dumps leave out fields in `new` that have their default.

    So runs keep their identity when fields are added.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    new: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        for name, default in _defaults(type(self)):
            if getattr(self, name) == default:  # of the field: JSON has no tuples
                values.pop(name, None)
        return values


@cache
def _defaults(kind: type[Settings]) -> list[tuple[str, Any]]:
    """Return the names and defaults of the fields in `new`."""
    return [(name, kind.model_fields[name].default) for name in kind.new]


class Model(Settings):
    """The backbone: its sizes, and how a layer is built."""

    new = ("norm", "activation", "attention_bias", "embedding_std", "residual", "qk_norm")

    layers: int = Field(gt=0, le=1000)
    heads: int = Field(gt=0, le=1000)
    width: int = Field(gt=0, le=100_000)
    mlp_ratio: PositiveInt = 4
    dropout: float = Field(0.0, ge=0, lt=1)
    tie_embeddings: bool = True
    vocab: PositiveInt = 64
    # LayerNorm before attention and MLP, or after their sums; or RMSNorm before them.
    norm: Literal["pre", "post", "rms"] = "pre"
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    attention_bias: bool = True  # in the projections to q, k, v and back
    embedding_std: PositiveFloat | None = None  # at the start; None: width^-0.5
    # One after the other, or side by side on the same input as in GPT-NeoX.
    residual: Literal["serial", "parallel"] = "serial"
    qk_norm: bool = False  # RMSNorm of each head's q and k, before the encoding transforms them

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.residual == "parallel" and self.norm == "post":
            raise ValueError('residual "parallel" needs norm "pre" or "rms"')
        return self


# Causal, with whole answers; both ways, in one pass; or causal, with every token predicted.
Track = Literal["decoder", "encoder", "text"]


class Stage(Settings):
    """One stage of the length curriculum: up to `until` (a share of all steps) train to `max`."""

    until: float = Field(gt=0, le=1)
    max: Length


def _shortest_first(lengths: tuple[int, int]) -> tuple[int, int]:
    if lengths[0] > lengths[1]:
        raise ValueError(f"lengths are {[*lengths]}: expected the shortest, then the longest")
    return lengths


def _later_ends(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    ends = [stage.until for stage in stages]
    if any(later <= stage for stage, later in pairwise(ends)):
        raise ValueError(f"curriculum has until = {ends}: expected each above the one before")
    return stages


Most = Annotated[Length, Field(le=10**6)]  # checks list the lengths up to it
Range = Annotated[tuple[Length, Most], AfterValidator(_shortest_first)]
Curriculum = Annotated[tuple[Stage, ...], AfterValidator(_later_ends)]
Draw = Literal["lengths", "instances", "shares"]
Context = Annotated[int, Field(ge=2, le=10**6)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Learned(Settings):
    """End training when every training length has reached `exact` at `evaluations` in a row.

    The rate then decays linearly to `floor` over `decay` more steps. A run that does not get there
    has them at the end of `Train.steps`.
    """

    exact: float = Field(0.99, gt=0, le=1)
    evaluations: PositiveInt = 2
    decay: PositiveInt


class Train(Settings):
    """Optimisation. One length per batch, from `lengths`; with `context`, one per sample.

    `samples`: a training set of that many, drawn once for the run, as many of each length, from
    which every batch takes its rows; 0: new ones at every step, as `context` needs them.
    `draw`: "lengths" are equally likely; or "instances" are, where a task can list them: a length
    comes up in proportion to how many it has; or "shares": as often as `Task.share` says.
    `context`: a batch is that many tokens in each row, cut from one stream of samples; tokens look
    across the borders of samples.
    """

    new = ("precision", "draw", "context", "samples", "learned")

    steps: NonNegativeInt  # 0: a run that only reads, with the weights it starts from
    batch: PositiveInt
    lengths: Range
    curriculum: Curriculum = ()
    draw: Draw = "lengths"
    samples: int = Field(0, ge=0)
    context: Context | None = None
    lr: PositiveFloat = 1e-3
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    weight_decay: float = Field(0.01, ge=0)
    warmup: int = Field(200, ge=0)
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    # A share of lr, which cosine reaches at the last step, linear one step later.
    floor: float = Field(0.05, ge=0, le=1)
    clip: PositiveFloat = 1.0
    checkpoint_every: PositiveInt = 250
    precision: Literal["float32", "bf16"] = "float32"  # bf16: autocast in training
    learned: Learned | None = None  # `steps` are then the most that a run takes

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.learned and self.learned.decay >= self.steps:
            raise ValueError(f"learned.decay {self.learned.decay} must be below steps {self.steps}")
        if self.samples and self.context is not None:
            raise ValueError(
                f"samples {self.samples} are for batches of one length, and context {self.context} "
                "packs new samples at every step: take samples 0, or a protocol without context"
            )
        return self

    def ending(self, validations: Iterable[tuple[int, float]] = ()) -> int:
        """Return the step from which the rate decays; without `learned`, the last step.

        validations: (step, the least exact match of a training length), so far. Without enough good
        ones in a row it is the last step that leaves room for the decay.

        >>> train = Train(steps=900, batch=1, lengths=(1, 2), learned={"decay": 100})
        >>> train.ending([(100, 1.0), (200, 1.0), (300, 0.5)]), train.ending([(100, 1.0)])
        (200, 800)
        """
        if self.learned is None:
            return self.steps
        latest, good = self.steps - self.learned.decay, 0
        for step, least in validations:
            good = good + 1 if least >= self.learned.exact else 0
            if good == self.learned.evaluations:
                return min(step, latest)
        return latest

    def last_step(self, ending: int) -> int:
        """Return the step that ends a training whose rate decays from `ending` on."""
        return ending + self.learned.decay if self.learned else ending


class TestSet(Settings):
    """A further test set of a task, and the lengths that it is tested at."""

    __test__ = False  # pytest must not collect it

    name: Annotated[str, Field(pattern=SET_NAME)]
    lengths: Lengths


class Eval(Settings):
    """Evaluation on a test set per length: all instances where `samples` has room for them.

    Else samples from a generator that no training step uses; at short lengths they may be instances
    that training has seen.
    `window`: a decoder sees the last so many tokens alone; when they are full, the window moves on
    by `stride` tokens. `set`: the task's test set that a run is scored on; "" is what it trains on.
    `sets`: further ones, scored after the last step.
    """

    new = ("examples", "top_below", "window", "stride", "set", "sets", "curve_lengths")

    lengths: Lengths
    samples: PositiveInt = 128
    min_samples: PositiveInt = 32
    max_tokens: PositiveInt = 20_000  # per length: beyond it fewer samples, never under min_samples
    every: PositiveInt = 250
    validation_samples: int = Field(
        32, gt=0, le=100_000
    )  # per training length, to choose the best checkpoint
    # Also average the top N evaluations: over all lengths, and of each.
    top: Literal[0, 1, 3] = 0
    top_below: PositiveFloat | None = None  # evaluations count from the first loss below it on
    curve_lengths: Lengths | None = None  # of `lengths`, those that every evaluation scores too
    examples: Literal["test", "tuning"] = "test"  # "tuning": a set apart, to choose settings by
    window: Context | None = None
    stride: PositiveInt = 20
    set: Annotated[str, Field(pattern=rf"{SET_NAME}|^$")] = ""
    sets: Annotated[tuple[TestSet, ...], Field(max_length=100)] = ()

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if more := sorted({*(self.curve_lengths or ())} - {*self.lengths}):
            raise ValueError(f"curve_lengths has {more[0]}, which is not among lengths")
        if self.window is not None and self.stride >= self.window:
            raise ValueError(f"stride {self.stride} must be below window {self.window}")
        if len({one.name for one in self.sets}) < len(self.sets):
            raise ValueError("sets name a test set twice")
        return self


class TaskSettings(Settings):
    """Settings that a protocol changes for one task; `OF_TASKS` maps the short names."""

    train_lengths: Range | None = None
    eval_lengths: Lengths | None = None
    curriculum: Curriculum | None = None
    draw: Draw | None = None
    train: dict[str, Any] = {}  # any other of these settings
    eval: dict[str, Any] = {}
    encodings: dict[str, dict[str, Any]] = {}

    def named(self, part: str) -> dict[str, Any]:
        """The settings of "train" or "eval" that have names of their own here."""
        return {name: getattr(self, field) for name, field in OF_TASKS[part].items()}


class Start(Settings):
    """The run of the same task and seed whose weights a run starts from.

    `set`: changes to that run's protocol, each as `--set` takes them.
    """

    protocol: str
    encoding: str
    set: tuple[str, ...] = ()


OF_TASKS = {
    "train": {"lengths": "train_lengths", "curriculum": "curriculum", "draw": "draw"},
    "eval": {"lengths": "eval_lengths"},
}


class Protocol(Settings):
    """Named settings. `encodings` gives options to an encoding by name; typed options win.

    `chosen_on` discloses the tasks whose results an encoding's options were chosen on, by its name.
    It changes no run.
    """

    name: str
    description: str
    seeds: str
    track: Track = "decoder"
    start: Start | None = None
    model: Model
    train: Train
    eval: Eval
    encodings: dict[str, dict[str, Any]] = {}
    chosen_on: dict[str, tuple[str, ...]] = {}
    tasks: dict[str, TaskSettings] = {}

    @model_validator(mode="after")
    def _tasks_agree(self) -> Self:
        steps = [self.settings(task)[1].steps for task in ("", *self.tasks)]
        if not (self.start or all(steps)):
            raise ValueError("train.steps 0 needs a table [start], which names trained weights")
        return self

    def settings(self, task: str) -> tuple[Model, Train, Eval]:
        """Return the settings that all encodings share on a task. Errors: ValidationError."""
        own = self._own(task)
        return (
            self.model,
            _changed(self.train, own.named("train"), own.train, ("tasks", task, "train")),
            _changed(self.eval, own.named("eval"), own.eval, ("tasks", task, "eval")),
        )

    def _own(self, task: str) -> TaskSettings:
        """Those of a task with exactly its options, else those of its name."""
        return self.tasks.get(task) or self.tasks.get(bare(task)) or TaskSettings()

    def fill(self, task: str, typed: Spec) -> Spec:
        """Return a typed encoding, without aliases, with this protocol's options for a task.

        Errors: SpecError for an alias that wraps an encoding.
        """
        own = self._own(task).encodings.get(typed.name, {})
        options = {**self.encodings.get(typed.name, {}), **own, **typed.options}
        filled = replace(typed, options=options).over(lambda inner: self.fill(task, inner))
        meant = expand(filled)
        return filled if meant is filled else self.fill(task, meant)


def encoding_version(versions: Iterable[int]) -> int:
    """Return one number for the versions of an encoding and of those it wraps: 2001 for 2 and 1."""
    return reduce(lambda total, version: total * 1000 + version, versions, 0)


WHERE = ("seed", "device", "attention")  # equal in a run and in the one that it starts from


class RunConfig(Settings):
    """Every setting that decides the result of one run.

    Python code reads `encoding` and `spec`; validation and dumps use the names of the JSON.
    `start` is the run whose weights after its last step this one starts from.
    """

    model_config = ConfigDict(serialize_by_alias=True)
    new = ("track", "start")

    protocol: str
    task: str
    task_version: int
    encoding: str = Field(alias="label")
    spec: str = Field(alias="encoding")
    encoding_version: int
    seed: int = Field(ge=0)
    device: Device
    attention: Attention
    track: Track = "decoder"
    start: "RunConfig | None" = None
    model: Model
    train: Train
    eval: Eval

    @model_validator(mode="after")
    def _starts(self) -> Self:
        if self.start is None:
            if not self.train.steps:
                raise ValueError("train.steps 0 needs a run to start from")
            return self
        if self.start.start is not None:
            raise ValueError("start must be a run that starts from no other")
        for name in (*WHERE, "task", "task_version", "track", "model"):
            if getattr(self, name) != getattr(self.start, name):
                raise ValueError(f"start has another {name}")
        return self

    @property
    def first(self) -> Self:
        """The run that drew the initial weights: this one, or the one that it starts from."""
        return self if self.start is None else self.start  # type: ignore[return-value]

    @property
    def hash(self) -> str:
        """16 hex digits over the canonical JSON of all fields."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def replace(self, **changes: Any) -> Self:
        """Return this run with other values of these fields, which are not checked.

        The run that it starts from gets the same seed, device and attention.
        """
        if self.start and (shared := {k: v for k, v in changes.items() if k in WHERE}):
            changes = {"start": self.start.replace(**shared)} | changes
        return self.model_copy(update=changes)

    def replace_train(self, **changes: Any) -> Self:
        """Return this run with other settings of its training."""
        return self.replace(train=self.train.model_copy(update=changes))

    def replace_eval(self, **changes: Any) -> Self:
        """Return this run with other settings of its evaluation."""
        return self.replace(eval=self.eval.model_copy(update=changes))


def _changed(
    settings: Any, changes: dict[str, Any], more: dict[str, Any], place: tuple[str, ...]
) -> Any:
    changes = {k: v for k, v in changes.items() if v is not None}
    if not more:
        return settings.model_copy(update=changes)
    try:
        return type(settings).model_validate(settings.model_dump() | changes | more)
    except ValidationError as error:
        inside = [one | {"loc": (*place, *one["loc"])} for one in error.errors()]
        raise ValidationError.from_exception_data(error.title, inside) from None
