"""Docstrings as HTML; formulas such as `a_ij = -m_h |i - j|` with raised and lowered parts."""

import re
from textwrap import dedent

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
_NAMES = "|".join(["sum", "prod", "bias", "clip", "log", "table", "max", "min", "base", *_GREEK])
_TOKEN = re.compile(
    rf"(?:(?<![A-Za-z])(?P<base>{_NAMES}|[A-Za-z)\]}}|])_"
    r"(?P<sub>\{[^{}]*\}|[A-Za-z]{1,3}(?![A-Za-z])|\d+))"
    r"|(?<=[^\s(\[{,])\^(?P<sup>\{[^{}]*\}|\([^()]*\)|[-−]?(?:[A-Za-z]+|[\d.]+))(?:_(?P<low>[A-Za-z]))?"
    r"|(?P<sign><=|>=|!=|->|\.\.\.|\+-|-\+|\*|(?<![A-Za-z])-|-(?![A-Za-z])"
    r"|(?<![A-Za-z]{2})-(?![A-Za-z]{2}))"
    r"|(?P<word>[A-Za-z]+)|(?P<rest>.)",
    re.DOTALL,
)
FORMULAS = ("Formula", "Score", "Stream")


def prose(doc: str) -> list[tuple[str, str, Markup]]:
    """(heading, "p", "pre" or "maths", HTML) for each paragraph, formulas rendered."""
    found = []
    for head, text in sections(doc):
        indented = text.startswith("    ")
        block = dedent(text) if indented else text
        maths = head in FORMULAS or (indented and not head)
        html = formula(block) if maths else Markup(escape(block))
        table = any(line.startswith("  ") for line in text.split("\n")[1:])
        tag = "maths" if maths and indented else "pre" if indented or table else "p"
        found.append((head, tag, html))
    return found


def sections(doc: str) -> list[tuple[str, str]]:
    """Split a docstring into (heading, paragraph); the heading is "" before the first.

    >>> sections("Turn it.\\n\\nFormula: b = 1\\n\\nPaper: A 2020.")
    [('', 'Turn it.'), ('Formula', 'b = 1'), ('Paper', 'A 2020.')]
    """
    found: list[tuple[str, str]] = []
    for paragraph in doc.split("\n\n"):
        lines = re.split(r"\n(?=[A-Z][a-z]+: )", paragraph)
        for line in lines:
            head = re.match(r"([A-Z][a-z]+): (?=\S)", line)
            found.append((head[1], line[head.end() :]) if head else ("", line))
    return found


def formula(text: str) -> Markup:
    """The text as HTML: <sub>, <sup>, Greek letters, signs; letters that are variables slanted.

    >>> str(formula("b_ij = -m_h sqrt(K)"))
    '<i>b</i><sub>ij</sub> = −<i>m</i><sub>h</sub> √(<i>K</i>)'
    """
    return Markup().join(_html(part, text) for part in _TOKEN.finditer(text))


def _html(part: re.Match[str], text: str) -> Markup:
    if part["sub"]:
        return formula(part["base"]) + _lowered("sub", part["sub"])
    if part["sup"]:
        return _lowered("sup", part["sup"]) + (_lowered("sub", part["low"]) if part["low"] else "")
    if part["sign"]:
        return Markup(_SIGNS[part["sign"]])
    word = part["word"] or part["rest"]
    if word in _GREEK:
        return Markup(f"<i>{_GREEK[word]}</i>")
    if word in _SIGNS and word != "-":  # a hyphen between words stays
        return Markup(_SIGNS[word])
    article = word in "aAI" and text[part.end() : part.end() + 1].isspace()
    slanted = len(word) == 1 and word.isalpha() and not article
    return Markup("<i>%s</i>") % word if slanted else escape(word)


def _lowered(tag: str, inner: str) -> Markup:
    """A raised or lowered part; brackets around it go."""
    grouped = inner[0] in "{("
    html = (
        formula(inner[1:-1])
        if grouped
        else Markup({**_SIGNS, **_GREEK}.get(inner, inner.replace("-", "−")))
    )
    return Markup(f"<{tag}>%s</{tag}>") % html
