"""The scalings of RoPE: slower rotations, for texts longer than those a model was trained on.

Each function takes the frequencies w_m = base^(-2m/K), m = 0..K/2-1, and returns the new ones with
the attention factor, by which q and k are both multiplied. The functions and their options are the
types and the keys of transformers' `rope_parameters`; `ntk`, `clipped`, `high_frequency`,
`in_distribution` and `riflex` are ours. L stands for
original_max_position_embeddings, the length in training; s for factor. With factor=auto s is the
smallest power of two for which s L holds the text: texts of up to L tokens are left alone.

>>> w = torch.tensor([1.0, 0.1])
>>> linear(w, factor=4.0)
(tensor([0.2500, 0.0250]), 1.0)
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pezoo.base import Shape
from pezoo.spec import choice, parse

Scaled = tuple[Tensor, float | Tensor]
AUTO, POWERS = "auto", 16  # factor=auto is at most 2^(POWERS - 1)
TRAINED = "original_max_position_embeddings"
_SHARES = "mscale", "mscale_all_dim"  # of the attention factor of yarn


def default(w: Tensor) -> Scaled:
    """Return w unchanged."""
    return w, 1.0


def linear(w: Tensor, *, factor: float) -> Scaled:
    """Position interpolation: w / s, as if positions were p / s.

    Example: s = 4: position 40 turns as position 10 did. Chen et al. 2023, Section 3.2.
    """
    return w / factor, 1.0


def ntk(w: Tensor, *, factor: float) -> Scaled:
    """NTK-aware: base becomes base s^(K/(K-2)), so that w_m becomes w_m s^(-2m/(K-2)).

    The highest frequency stays, the lowest is divided by s. Example: K = 4, s = 4: w_0 stays, w_1
    becomes w_1 / 4. Peng et al. 2023 (YaRN), Section 3.1, after bloc97.
    """
    m = _numbers(len(w), w)
    return w * (1.0 * factor) ** (-m / max(len(w) - 1, 1)), 1.0


def dynamic(
    w: Tensor, *, factor: float, original_max_position_embeddings: int, length: Tensor
) -> Scaled:
    """Dynamic NTK: `ntk` with s n / L - (s - 1) for s, for a text of n > L tokens, else w.

    length (B|1,) is n -> (B|1, K/2). Example: s = 2, L = 100: n = 100 has 1, n = 150 has 2 for s.
    Peng et al. 2023, Section 3.3, have n / L for s; the factor is transformers'.
    """
    n = length.clamp(min=original_max_position_embeddings).to(w.dtype)
    grown = factor * n / original_max_position_embeddings - (factor - 1)  # (B|1,)
    m = _numbers(len(w), w)
    return w * grown[:, None] ** (-m / max(len(w) - 1, 1)), 1.0


def yarn(
    w: Tensor,
    *,
    factor: float,
    original_max_position_embeddings: int,
    rope_theta: float,
    attention_factor: float | None = None,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
) -> Scaled:
    """YaRN: pairs that turn often in L tokens keep w, those that turn seldom get w / s.

    Between the pairs with beta_fast and beta_slow turns in L tokens a linear ramp over m; its ends
    are rounded outwards unless `truncate` is false. The attention factor is 0.1 ln s + 1, or with
    mscale a and mscale_all_dim b (0.1 a ln s + 1) / (0.1 b ln s + 1), as in DeepSeek V3.

    Example: L = 4096, rope_theta = 10000, K = 128: m <= 20 keeps w, m >= 46 gets w / s.
    Peng et al. 2023, Sections 3.2 and 3.4; there the ramp is over the number of turns, as in
    `llama3`, and in the released code over m, as here.
    """

    if rope_theta <= 1:
        raise ValueError(f"rope_type=yarn needs a base above 1, got {rope_theta}")
    if beta_slow >= beta_fast:
        raise ValueError(f"beta_slow must be below beta_fast, got {beta_slow} and {beta_fast}")

    def pair(turns: float) -> float:
        share = original_max_position_embeddings / (turns * 2 * math.pi)
        return len(w) * math.log(share) / math.log(rope_theta)

    low, high = pair(beta_fast), pair(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * len(w) - 1)
    m = _numbers(len(w), w)
    ramp = ((m - low) / max(high - low, 0.001)).clamp(0, 1)
    if attention_factor is None:
        attention_factor = _grown(factor, 0.1)
    return w / factor * ramp + w * (1 - ramp), attention_factor


def llama3(
    w: Tensor,
    *,
    factor: float,
    original_max_position_embeddings: int,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
) -> Scaled:
    """Llama 3.1: as `yarn`, with a ramp over the number of turns in L tokens, L w / 2 pi.

    From high_freq_factor turns up w stays, up to low_freq_factor it is divided by s; between, the
    two are mixed linearly in the number of turns.

    Example: L = 8192, s = 8: a wavelength of 2048 tokens (4 turns) stays, one of 8192 tokens
    (1 turn) becomes 65,536. The released code of Llama 3.1 (Meta 2024).
    """
    low, high = low_freq_factor, high_freq_factor
    if low >= high:
        raise ValueError(f"low_freq_factor must be below high_freq_factor, got {low} and {high}")
    turns = original_max_position_embeddings * w / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return w / factor * (1 - keep) + w * keep, 1.0


def longrope(
    w: Tensor,
    *,
    short_factor: Sequence[float],
    long_factor: Sequence[float],
    original_max_position_embeddings: int,
    length: Tensor,
    factor: float = 1.0,
    attention_factor: float | None = None,
) -> Scaled:
    """LongRoPE: w_m / short_factor_m for texts of up to L tokens, w_m / long_factor_m beyond.

    length (B|1,) -> (B|1, K/2). The factors, one per pair, come from a search. The attention factor
    is sqrt(1 + ln s / ln L), for any length.

    Example: L = 10, factors (1, 1) and (1, 2): with the 11th token w_1 is halved, everywhere.
    Ding et al. 2024, as Phi-3 and transformers have it: without the paper's first tokens that
    keep their positions.
    """
    for name, given in (("short_factor", short_factor), ("long_factor", long_factor)):
        if len(given) != len(w):
            raise ValueError(f"{name} needs d_head / 2 = {len(w)} numbers, got {len(given)}")
    short, long = (w.new_tensor(x) for x in (short_factor, long_factor))
    beyond = (length > original_max_position_embeddings)[:, None]
    if attention_factor is None:
        rate = 1 / math.log(max(original_max_position_embeddings, 2))
        attention_factor = math.sqrt(_grown(factor, rate))
    return w / torch.where(beyond, long, short), attention_factor


def proportional(w: Tensor, *, partial_rotary_factor: float, factor: float = 1.0) -> Scaled:
    """p-RoPE: the highest p = partial_rotary_factor of the frequencies turn, the others do not.

    Example: K = 8, p = 0.75: w_0, w_1, w_2, 0. Barbero et al. 2024, "Round and Round We Go!".
    """
    if partial_rotary_factor > 1:
        raise ValueError(f"partial_rotary_factor must be at most 1, got {partial_rotary_factor}")
    turning = torch.arange(len(w), device=w.device) < int(partial_rotary_factor * len(w))
    return w * turning / factor, 1.0


def clipped(w: Tensor, *, share: float = 20 / 64) -> Scaled:
    """Clipped RoPE: the n = share K/2 lowest frequencies fade out, w_m (1 + cos(pi t)) / 2.

    t goes from 0 at the first of them to 1 at the last, which does not turn. `proportional` clips
    them hard. Example: K = 8, share = 0.75: w_0, w_1, w_2 / 2, 0.
    Li et al. 2026, "CoPE: Clipped RoPE"; n is that of the released code, 20 of 64 pairs.
    """
    if share > 1:
        raise ValueError(f"share must be at most 1, got {share}")
    n = round(share * len(w))
    # Counted from the end, so that a single pair does not turn.
    fade = torch.linspace(math.pi, 0.0, n, device=w.device, dtype=w.dtype).flip(0).cos() / 2 + 0.5
    return torch.cat([w[: len(w) - n], w[len(w) - n :] * fade]), 1.0


def high_frequency(w: Tensor, *, original_max_position_embeddings: int) -> Scaled:
    """HoPE: pairs that turn at least once in L tokens, w_m >= 2 pi / L, keep w, the others are 0.

    The others compare content alone. Example: K = 8, L = 100: 1, 0.1, 0, 0.
    Chen et al. 2025, "HoPE: A Novel Positional Encoding Without Long-Term Decay".
    """
    return w * (w >= 2 * math.pi / original_max_position_embeddings), 1.0


def in_distribution(
    w: Tensor, *, original_max_position_embeddings: int, partial_rotary_factor: float = 0.5
) -> Scaled:
    """RoPE-ID: n = p K/2 pairs turn, all at least once in L tokens, the others do not.

    The frequencies are (2 pi / L)^(m / (n - 1)), m = 0..n-1: from one radian to one turn in L
    tokens, so that no pair meets an angle that training lacks. w is not read.
    Example: K = 8, p = 0.5, L = 100: 1, 0.063, 0, 0.
    Wertheimer et al. 2026, "Frayed RoPE and Long Inputs": high frequencies on a subset of the
    channels; half of them, and how frequencies are spaced, are our choice.
    """
    if partial_rotary_factor > 1:
        raise ValueError(f"partial_rotary_factor must be at most 1, got {partial_rotary_factor}")
    n = int(partial_rotary_factor * len(w))
    lowest = min(1.0, 2 * math.pi / original_max_position_embeddings)
    turning = lowest ** (_numbers(n, w) / max(n - 1, 1))
    return torch.cat([turning, torch.zeros_like(w[n:])]), 1.0


def riflex(w: Tensor, *, factor: float, original_max_position_embeddings: int) -> Scaled:
    """RIFLEx: one pair k turns at most once in s L tokens, w_k <= 2 pi / (s L), the others keep w.

    k is the pair whose period 2 pi / w_k is nearest to L. s = 1 changes nothing.

    Example: L = 100, K = 8, s = 4: the periods 6.3, 63, 628, 6283 become 6.3, 400, 628, 6283.
    Zhao et al. 2025, "RIFLEx", Equation 8. There k is the pair nearest to the length after which
    videos repeat themselves; that it is L is our choice. The released code has .9 of w_k.
    """
    nearest = (2 * math.pi / w - original_max_position_embeddings).abs().argmin()
    slowed = torch.arange(len(w), device=w.device) == nearest
    most = 2 * math.pi / (factor * original_max_position_embeddings)
    return torch.where(slowed, w.clamp(max=most), w) if factor > 1 else w, 1.0


SCALINGS: dict[str, Callable[..., Scaled]] = {
    f.__name__: f
    for f in (
        default, linear, ntk, dynamic, yarn, llama3, longrope, proportional, clipped,
        high_frequency, in_distribution, riflex,
    )
}  # fmt: skip


def read(rope_parameters: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return rope_parameters as a dictionary, without the keys that are None.

    `type`, the name of rope_type in old configs, becomes rope_type.

    Errors: ValueError for an unknown type or key, for two types, for numbers that are not above 0
    (mscale and mscale_all_dim may be 0, which leaves them out), and for a text that names an
    encoding to wrap.

    >>> read("yarn(factor=4)")
    {'rope_type': 'yarn', 'factor': 4}
    """
    if isinstance(rope_parameters, str):
        spec = parse(rope_parameters)
        if spec.wrapped:
            raise ValueError(f"rope_parameters wraps nothing, got {rope_parameters}")
        rope_parameters = {"rope_type": spec.name, **spec.options}
    found = {name: value for name, value in rope_parameters.items() if value is not None}
    old = found.pop("type", "default")
    kind = found.setdefault("rope_type", old)
    if old not in ("default", kind):
        raise ValueError(f"rope_type={kind} and type={old} differ: leave out type")
    choice("rope_type", kind, SCALINGS)
    for name in found:
        choice("key of rope_parameters", name, _known())
    if type(found.get("truncate", True)) is not bool:
        raise ValueError(f"truncate must be true or false, got {found['truncate']!r}")
    auto = {"factor"} if found.get("factor") == AUTO else set()
    for name in found.keys() - {"rope_type", "truncate"} - auto:
        listed, value = name in ("short_factor", "long_factor"), found[name]
        numbers: Any = value if listed and isinstance(value, tuple | list) else [value]
        least = 0 if name in _SHARES else math.ulp(0)
        fit = all(type(x) in (int, float) and least <= x < math.inf for x in numbers)
        if not fit or (listed and numbers is not value):
            what = "numbers" if listed else "a number"
            raise ValueError(f"{name} must be {what} above 0 and finite, got {value!r}")
    return found


def choose(rope_parameters: Mapping[str, Any], shape: Shape) -> Callable[..., Scaled]:
    """Return the function of a type, bound to its options, which `read` returned.

    original_max_position_embeddings is shape.train_len by default, and the factor of yarn and
    longrope is shape.train_len / original_max_position_embeddings, as in transformers.
    Errors: ValueError for options that are missing or unknown.
    """
    own = dict(rope_parameters)
    kind = own.pop("rope_type")
    parameters = _options(kind)
    if own.get("factor") == AUTO:
        if "length" in parameters:
            raise ValueError(f"rope_type={kind} reads the length itself: factor must be a number")
        each = [choose({**rope_parameters, "factor": 2.0**n}, shape) for n in range(POWERS)]
        return partial(_by_length, each, own.get(TRAINED) or shape.train_len)
    partly = "partial_rotary_factor" in parameters
    if not partly and own.pop("partial_rotary_factor", 1.0) != 1.0:
        raise ValueError(f"rope_type={kind} rotates whole heads: partial_rotary_factor must be 1")
    if kind in ("yarn", "longrope") and TRAINED in own and "factor" not in own:
        own["factor"] = shape.train_len / own[TRAINED]
    if TRAINED in parameters and TRAINED not in own:
        own[TRAINED] = shape.train_len
    if kind == "yarn":
        scales = [own.pop(name, None) for name in _SHARES]
        if all(scales) and "factor" in own:
            more, less = (_grown(own["factor"], 0.1 * x) for x in scales)
            own.setdefault("attention_factor", more / less)
    for name in own.keys() - parameters.keys() - {TRAINED, "rope_theta"}:
        takers = ", ".join(other for other in SCALINGS if name in _options(other))
        which = f", which is for {takers}" if takers else ""
        raise ValueError(f"rope_type={kind} does not take {name}{which}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in {*own, "length"}:
            raise ValueError(f"rope_type={kind} needs {name}")
    return partial(SCALINGS[kind], **{k: v for k, v in own.items() if k in parameters})


def _by_length(
    each: Sequence[Callable[..., Scaled]], trained: int, w: Tensor, *, length: Tensor
) -> Scaled:
    """Return w (B|1, K/2) and the attention factors (B|1,) for texts of `length` (B|1,) tokens."""
    tables, factors = zip(*(scaled(w) for scaled in each), strict=True)
    too_short = [length > trained * 2**n for n in range(len(each) - 1)]
    n = torch.stack(too_short).sum(0)
    return torch.stack(tables)[n], w.new_tensor(factors)[n]


def reads_length(rope_parameters: Mapping[str, Any]) -> bool:
    """Return True if the frequencies depend on the length of the text."""
    kind, factor = rope_parameters["rope_type"], rope_parameters.get("factor")
    return factor == AUTO or "length" in _options(kind)


def _options(kind: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(SCALINGS[kind]).parameters
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}


def _known() -> list[str]:
    """Return every key that rope_parameters may have."""
    options = {name for kind in SCALINGS for name in _options(kind)} - {"length"}
    return sorted(options | {"rope_type", "rope_theta", "partial_rotary_factor", TRAINED, *_SHARES})


def _numbers(n: int, w: Tensor) -> Tensor:
    """Return 0, 1, ..., n - 1 in the dtype of w, which may be another than torch's default."""
    return torch.arange(n, device=w.device, dtype=w.dtype)


def _grown(factor: float, rate: float) -> float:
    """Return 1 + rate ln(factor), or 1 for a factor up to 1."""
    return 1.0 + rate * math.log(factor) if factor > 1 else 1.0
