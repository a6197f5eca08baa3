"""Formulas as docstrings write them, `a_ij = -m_h |i - j|`, with raised and lowered parts."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "theta": "θ",
    "lambda": "λ", "mu": "μ", "pi": "π", "sigma": "σ", "tau": "τ", "phi": "φ", "psi": "ψ",
    "omega": "ω",
}  # fmt: skip
_SIGNS = {
    "<=": "≤", ">=": "≥", "!=": "≠", "->": "→", "...": "…", "+-": "±", "-+": "∓",
    "sqrt": "√", "sum": "∑", "prod": "∏", "infinity": "∞", "inf": "∞", "*": "·", "-": "−",
}  # fmt: skip
_TOKEN = re.compile(r"<=|>=|!=|->|\.\.\.|\+-|-\+|[A-Za-z]+|\d+(?:\.\d+)?|\s+|.", re.DOTALL)
_CLOSE = {"{": "}", "(": ")"}
_WORDS_WITH_PARTS = {"sum", "prod", "bias", "clip", "log", "table", "max", "min", "base", *_GREEK}


def formula(text: str) -> Markup:
    """The text as HTML: <sub>, <sup>, Greek letters, signs; letters that are variables slanted.

    >>> str(formula("b_ij = -m_h sqrt(K)"))
    '<i>b</i><sub>ij</sub> = −<i>m</i><sub>h</sub> √(<i>K</i>)'
    """
    return _render(_TOKEN.findall(text))


def _render(tokens: list[str]) -> Markup:
    out, at, before = Markup(), 0, ""
    while at < len(tokens):
        token = tokens[at]
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        tag = {"_": "sub", "^": "sup"}.get(token)
        if tag and _takes_part(before, tag, after):
            inner, at = _argument(tokens, at + 1)
            out += Markup(f"<{tag}>%s</{tag}>") % inner
            before = ")"
            continue
        out += _token(token, before, after)
        before, at = token, at + 1
    return out


def _takes_part(before: str, tag: str, after: str) -> bool:
    """Whether a raised or lowered part follows here; `max_distance` is a word."""
    if not after or after.isspace() or not (before.strip() and before not in "([{,"):
        return False
    if tag == "sup":
        return after.isalnum() or after in ("{", "(", "-", "−")
    short = after == "{" or len(after) <= 3
    return short and (len(before) == 1 or before in _WORDS_WITH_PARTS)


def _argument(tokens: list[str], at: int) -> tuple[Markup, int]:
    """A group in brackets, without them, or one token; and where the rest begins."""
    first = tokens[at]
    if first not in _CLOSE:
        end = at + 2 if first == "-" else at + 1
        return _render_part(tokens[at:end]), end
    depth = 0
    for end in range(at, len(tokens)):
        depth += (tokens[end] == first) - (tokens[end] == _CLOSE[first])
        if not depth:
            return _render(tokens[at + 1 : end]), end + 1
    return _render(tokens[at + 1 :]), len(tokens)


def _render_part(tokens: list[str]) -> Markup:
    texts = {**_SIGNS, **_GREEK}
    return Markup().join(texts.get(token, token) for token in tokens)


def _token(token: str, before: str, after: str) -> Markup:
    hyphen = token == "-" and before.isalpha() and after.isalpha() and len(before + after) > 2
    if token in _SIGNS and not hyphen:
        return Markup(escape(_SIGNS[token]))
    if token in _GREEK:
        return Markup("<i>%s</i>") % _GREEK[token]
    if len(token) == 1 and token.isalpha() and not (token in "aAI" and after.isspace()):
        return Markup("<i>%s</i>") % token
    return Markup(escape(token))
