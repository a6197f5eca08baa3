"""Ways to read on: which to try by default, and how other software is told of one."""

import json
import math
from typing import Any

from harness.extend.subject import OWN, Subject
from pezoo import rope_scaling
from pezoo.registry import check, parse, parse_list

FIXED = "linear", "ntk", "yarn", "llama3"  # scalings whose frequencies no text changes
PLAIN = {"rope_type", "rope_theta", "factor", rope_scaling.TRAINED}  # what llama.cpp has flags for
BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # of llama3


def default(subject: Subject, length: int) -> str:
    """Return encodings that may read `length` tokens; a model's own scaling is left alone."""
    factor = factor_for(subject.trained, length)
    scaled = [f"ntk(factor={factor})", f"yarn(factor={factor})", "yarn(factor=auto)"]
    scaled.append("dynamic(factor=2)")
    plain = (subject.rotation or {}).get("rope_type", "default") == "default"
    ways = [f"rope(rope_parameters={one})" for one in scaled] if plain else []
    ways += ["rerope", f"self_extend(group={2 * factor})", "dual_chunk"]
    return ",".join([*ways, "window(sinks=4):rope"])


def ways(text: str) -> list[str]:
    """Return the encodings of a list, the model's own rotation first. Errors: SpecError."""
    return list(dict.fromkeys([OWN, *(str(check(one)) for one in parse_list(text))]))


def lengths(trained: int, longest: int) -> tuple[int, ...]:
    """Return half of L, L, its doubles below the longest, and the longest.

    >>> lengths(128, 700)
    (64, 128, 256, 512, 700)
    """
    doubles = [trained * 2**n for n in range(longest.bit_length())]
    return (max(1, trained // 2), *(n for n in doubles if n < longest), longest)


def factor_for(trained: int, length: int) -> int:
    """Return the smallest power of two for which factor * trained holds the text.

    >>> factor_for(2048, 2048), factor_for(2048, 12000)
    (1, 8)
    """
    return int(2 ** max(0, math.ceil(math.log2(length / trained))))


def paste(way: str, subject: Subject, length: int) -> dict[str, str]:
    """Return what tells transformers, vLLM and llama.cpp to read `length` tokens in this way.

    Only what computes the same is there: `ntk` is a larger rope_theta, factor=auto the factor for
    this length.
    """
    if subject.rotation is None:
        return {}
    found = {"pezoo": f'use(model, "{way}")  # from pezoo.adapters.transformers'}
    spec = parse(way)
    if spec.name == "self_extend":
        return found | _grouped(subject, length, **spec.options)
    if spec.name != "rope" or {*spec.options} != {"rope_parameters"}:
        return found
    own = rope_parameters(spec.options["rope_parameters"], subject, length)
    if own is None:
        return found
    kind, flags, told = own["rope_type"], f"--ctx-size {length}", {"rope_parameters": own}
    if kind in ("default", "llama3"):  # from the others vLLM derives that it may read so far
        told["max_position_embeddings"] = length
    found["config.json"] = json.dumps(told)[1:-1]
    if kind == "dynamic":
        return found
    found["vLLM"] = f"--hf-overrides '{json.dumps(told)}' --max-model-len {length}"
    if kind == "default":
        found["llama.cpp"] = f"{flags} --rope-freq-base {own['rope_theta']:.6g}"
    elif kind in ("linear", "yarn") and {*own} <= PLAIN:
        found["llama.cpp"] = f"{flags} --rope-scaling {kind} --rope-scale {own['factor']:g}"
        found["llama.cpp"] += f" --yarn-orig-ctx {subject.trained}" * (kind == "yarn")
    return found


def rope_parameters(text: Any, subject: Subject, length: int) -> dict[str, Any] | None:
    """Return what config.json needs for the scaling, None if transformers does not have it."""
    own = rope_scaling.read(text)
    kind, factor = own["rope_type"], own.get("factor")
    if kind not in (*FIXED, "dynamic"):
        return None
    own = {"rope_theta": float((subject.rotation or {}).get("rope_theta", 10_000.0))} | own
    if factor is not None:
        auto = factor == rope_scaling.AUTO
        own["factor"] = float(factor_for(subject.trained, length) if auto else factor)
    if kind == "ntk":
        power = subject.d_head / (subject.d_head - 2)
        return {"rope_type": "default", "rope_theta": own["rope_theta"] * own["factor"] ** power}
    if kind in ("yarn", "llama3"):
        own.setdefault(rope_scaling.TRAINED, subject.trained)
    return (BANDS if kind == "llama3" else {}) | own


def _grouped(
    subject: Subject, length: int, group: int = 0, window: int = 0, **more: Any
) -> dict[str, str]:
    """Return the flags of llama.cpp's completion tool, whose window is a multiple of the group."""
    window = window or max(1, subject.trained // 2)
    group = group or math.ceil((length - window) / max(1, subject.trained - window))
    if more or window % group:
        return {}
    flags = f"--ctx-size {length} --grp-attn-n {group} --grp-attn-w {window}"
    return {"llama.cpp (llama-completion)": flags}
