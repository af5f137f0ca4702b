"""Docstrings in PyG's style as Markdown: roles become code, formulas become Unicode."""

import re
import textwrap

# What a command becomes; one that is not here keeps its name, as \max and \exp should.
SYMBOLS = {
    "alpha": "\N{GREEK SMALL LETTER ALPHA}",
    "beta": "\N{GREEK SMALL LETTER BETA}",
    "gamma": "\N{GREEK SMALL LETTER GAMMA}",
    "in": "∈",
    "ldots": "...",
    "leq": "≤",
    "prime": "\N{PRIME}",
    "sum": "Σ",
    "left": "",
    "right": "",
    "mathbf": "",
    "mathcal": "",
    "mathrm": "",
    "textstyle": "",
}
ACCENTS = {"bar": "\N{COMBINING MACRON}", "hat": "\N{COMBINING CIRCUMFLEX ACCENT}", "tilde": "~"}


def to_markdown(docstring: str) -> str:
    """The docstring, whose first line is not indented, as Markdown."""
    text = re.sub(r"^( *)\.\. math::\n((?:\n|\1 +.*\n)+)", _block, docstring + "\n", flags=re.M)
    code = r"^( *)\.\. code-block:: (\w+)\n((?:\n|\1 +.*\n)+)"
    text = re.sub(code, lambda found: _fenced(found[1], found[2], found[3]), text, flags=re.M)
    text = re.sub(r":math:`([^`]+)`", lambda found: f"`{formula(found[1])}`", text)
    text = re.sub(r":\w+:`~[\w.]*?(\w+)`", r"`\1`", text)
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", text)
    link = r"`([^`<]+?)\s*<([^`>]+)>`_"
    text = re.sub(link, lambda found: f"[{' '.join(found[1].split())}]({found[2]})", text)
    return text.rstrip("\n")


def formula(latex: str) -> str:
    """LaTeX as one line of Unicode."""
    text = " ".join(latex.split()).replace("&", "").replace(r"\,", " ")
    text = text.replace(r"\{", "⦃").replace(r"\}", "⦄")  # braces that are to be seen
    text = re.sub(r"\\t?frac\{(\w+)\}\{(\w+)\}", r"\1/\2", text)
    text = re.sub(r"\\(?:mathbf|mathcal|mathrm)\{(\w+)\}", r"\1", text)
    for command, accent in ACCENTS.items():
        text = re.sub(rf"\\{command}(?:\{{(\w)\}}|(\\[a-z]+))", rf"\1\2{accent}", text)
    text = re.sub(r"\\([a-z]+)", lambda found: SYMBOLS.get(found[1], found[1]), text)
    text = re.sub(r"([_^])\{([^{} ]+)\}", r"\1\2", text)
    text = re.sub(r"\{⦃ ?([^{}]*)⦄\}", r"⦃\1⦄", text)
    text = text.replace("^\N{PRIME}", "\N{PRIME}").replace("⦃", "{").replace("⦄", "}")
    text = re.sub(r"([(\[]) +", r"\1", re.sub(r" +([)\],])", r"\1", text))
    return " ".join(text.split())


def _block(found: re.Match[str]) -> str:
    """A block of formulas: a line for each, however they were wrapped."""
    paragraphs = re.split(r"\n\s*\n", textwrap.dedent(found[2]).strip())
    formulas = [part for text in paragraphs for part in re.split(r",? *\\qquad", text)]
    return _fenced(found[1], "text", "\n".join(map(formula, formulas)))


def _fenced(indent: str, language: str, code: str) -> str:
    lines = [f"```{language}", *textwrap.dedent(code).strip().splitlines(), "```"]
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in lines) + "\n"
