"""``nautilusc explain N0303``: what a diagnostic code means, from the reference of the language."""

from __future__ import annotations

import re
from pathlib import Path

from nautilus.core.errors import InputError
from nautilus.frontend.codes import CODES
from nautilus.frontend.syntax.grammar import grammar_file

PAGE = "README.md"
#: codes of files that are no specs, which the reference of the language does not have
_OF_DUMPS = {
    "N0901": "a syntax error in the text of an IR, whose grammar is in nautilus/README.md",
    "N0902": "an input file that cannot be read as what its suffix says, such as a dump without its header",
}


def explained(word: Path) -> str | None:
    """The section of the page on the code ``word``; None where the word is no code.

    Raises InputError for a code that does not exist.
    """
    code = str(word).upper()
    if not re.fullmatch(r"N\d{1,4}", code) or word.exists():
        return None
    if code in _OF_DUMPS:
        return f"{code}: {_OF_DUMPS[code]}\n"
    if code not in CODES:
        raise InputError(f"there is no code {code}; the codes are {min(CODES)} to {max(_OF_DUMPS)}")
    return sections(grammar_file(PAGE).read_text(encoding="utf-8"))[code]


def sections(page: str) -> dict[str, str]:
    """The entries of the page by code, each with the meaning of the code as its first line."""
    found = re.findall(r"^\*\*(N\d{4})\*\*: (.*?)(?=^\*\*N\d{4}\*\*: |^##|\Z)", page, re.MULTILINE | re.DOTALL)
    return {code: f"{code}: {CODES[code]}\n\n{_plain(text[:1].upper() + text[1:])}\n" for code, text in found}


def _plain(text: str) -> str:
    """Markdown as text for a terminal: examples are indented, and code stands in quotes."""
    out: list[str] = []
    fenced = False
    for line in text.strip().splitlines():
        if line.startswith("```"):
            out += [""] if not fenced and out and out[-1] else []
            fenced = not fenced
        else:
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line).replace("`", "'")
            out.append(f"    {line}".rstrip() if fenced else plain)
    return "\n".join(out)
