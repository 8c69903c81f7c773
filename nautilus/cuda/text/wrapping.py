"""Breaks long lines of C++ after a comma or an operator, where few parentheses are open, inside string literals too.

Adjacent string literals are one, so the text means the same.
"""

from __future__ import annotations

WIDTH = 140  # columns of the longest line
_INDENT = "    "
_ENDS = (", ", "; ", "{ ", " = ", " ? ", " : ", " && ", " || ", " + ", "> ", ") ", " ")  # best first


def wrapped(text: str) -> str:
    """``text`` with no line longer than :data:`WIDTH`, where it can be broken."""
    return "\n".join(part for line in text.split("\n") for part in _broken(line)) if _is_long(text) else text


def _is_long(text: str) -> bool:
    return any(len(line) > WIDTH for line in text.split("\n"))


def _broken(line: str) -> list[str]:
    """The lines into which ``line`` is broken; macros are as long as they are.

    A comment after code goes to a line of its own in front of it.
    """
    start = line.lstrip()
    first = line[: len(line) - len(start)]
    indent = first + 2 * _INDENT
    out: list[str] = []
    if len(line) <= WIDTH:
        return [line]
    if start.startswith("// "):
        return _broken_comment(line, first)
    if not start.startswith(("//", "#")) and (at := _comment(line)):
        return [first + line[at:], *_broken(line[:at].rstrip())]
    while len(line) > WIDTH and not start.startswith(("//", "#")):
        at, quoted = _place(line, len(indent) if out else len(first))
        if at == 0:
            break
        head, rest = line[:at], line[at:]
        out.append(f'{head}"' if quoted else head.rstrip())
        line = indent + (f'"{rest}' if quoted else rest.lstrip())
    return [*out, line]


def _broken_comment(line: str, first: str) -> list[str]:
    """The lines of a comment that has a line of its own, broken at spaces."""
    at = line.rfind(" ", len(line) - len(line.lstrip(" /")), WIDTH + 1)
    if len(line) <= WIDTH or at < 0:
        return [line]
    return [line[:at], *_broken_comment(f"{first}//     {line[at + 1 :]}", first)]


def _comment(line: str) -> int:
    """Where the comment after the code of ``line`` begins; 0 without one."""
    if "//" not in line:
        return 0
    inside = _nesting(line)[1]
    return next((n for n in range(len(line)) if line.startswith("//", n) and not inside[n]), 0)


def _place(line: str, least: int) -> tuple[int, bool]:
    """Where to break ``line``, and whether that is inside a string; 0 for nowhere.

    The first half of a line is broken where the second half has no place, as between two long names.
    """
    depths, inside = _nesting(line[:WIDTH])
    for most in (WIDTH - 1, WIDTH // 2):
        found: list[tuple[int, int, int]] = []
        for at in range(most, max(WIDTH // 2 if most > WIDTH // 2 else 0, least + 1), -1):
            if line[at - 1] != " ":  # all of them end with a space
                continue
            rank = next((n for n, end in enumerate(_ENDS) if line.startswith(end, at - len(end))), None)
            if rank is not None and inside[at - len(_ENDS[rank])] == inside[at]:
                found.append((depths[at], rank, -at))
        if found:
            at = -min(found)[2]
            return at, inside[at]
    return 0, False


def _nesting(line: str) -> tuple[list[int], list[bool]]:
    """For each character, how many brackets are open before it, and whether it is inside a string literal.

    Those of the arguments of a template, which follow a name, are among them.
    """
    depths, strings = [0], [False]
    depth, inside, escaped, templates, before = 0, False, False, 0, " "
    for c in line:
        if c == '"' and not escaped:
            inside = not inside
        elif not inside:
            opens, closes = c == "<" and (before.isalnum() or before == "_"), c == ">" and templates > 0
            templates += opens - closes
            depth += (c in "([" or opens) - (c in ")]" or closes)
        before = c
        escaped = c == "\\" and not escaped
        depths.append(depth)
        strings.append(inside)
    return depths, strings
