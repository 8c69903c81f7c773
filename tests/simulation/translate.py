"""Printed CUDA text to C++ for the simulated GPU of ``machine/``.

Four forms of CUDA are no C++.  Each is replaced by a call with the same text and operands; everything else is compiled
as it is printed, and ``machine/device.h`` says what its names mean.

==================================== =================================================================
``asm("text" : outputs : inputs)``    ``host::execute(&site, ...)``, which interprets the PTX text
``extern __shared__ ... smem[];``     a pointer to the shared memory of the running block
``kernel<<<grid, block, ...>>>(...)`` ``host::start(...)``, which runs a fiber for each thread
``__launch_bounds__(...) name(``      besides, an object that tells the bounds of the kernel
==================================== =================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_STRING = r'"(?:[^"\\]|\\.)*"'
_NAMES = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"')  # comments and strings, which have names of the spec
_ASM = re.compile(r"\basm\s*(?:volatile\s*)?\(")
_SHARED = re.compile(r"extern __shared__ __align__\(\d+\) unsigned char (\w+)\[\];")
_LAUNCH = re.compile(r"(\w+)<<<([^;]*?),\s+([^;]*?),\s+([^;]*?),\s+(\w+)>>>\(([^;]*)\);")
_BOUNDS = re.compile(
    r"__global__ void __launch_bounds__\((\d+), (\d+)\)(?: __cluster_dims__\((\d+), 1, 1\))?\s+(\w+)\(([^{]*)\) \{"
)
_NAMESPACE = re.compile(r"^namespace (\w+) \{", re.MULTILINE)
_LAST_INCLUDE = re.compile(r"#include <cuda_runtime.h>\n(?:#include <[^>]*>\n)*")


class TranslationError(Exception):
    """The text has a form that the translation does not know."""


@dataclass(frozen=True, slots=True)
class Operand:
    """``constraint`` without its quotes; ``text``: the C++ expression."""

    constraint: str
    text: str


def translate(text: str) -> str:
    """The C++ text. Raises TranslationError."""
    bounds = "".join(map(_bounds, _BOUNDS.finditer(text)))
    text = _replace_asm(text)
    text = _SHARED.sub(r"unsigned char* const \1 = host::shared_base();", text)
    text = _LAUNCH.sub(r"host::start((const void*)\1, \2, \3, \4, false, [=] { \1(\6); });", text)
    if "<<<" in text or re.search(r"\basm\b", _NAMES.sub("", text)):
        raise TranslationError("a launch or an asm statement that is not understood")
    head = '#include "device.h"\nnamespace host { unsigned char* shared_base(); }\n'
    return head + _LAST_INCLUDE.sub(lambda m: m[0] + bounds, text, count=1)


def _bounds(kernel: re.Match[str]) -> str:
    """The object that tells the bounds of a kernel, which is in the last namespace that opens before it."""
    threads, blocks, cluster, name, _ = kernel.groups()
    scope = "".join(f"{m[1]}::" for m in [*_NAMESPACE.finditer(kernel.string, 0, kernel.start())][-1:])
    numbers = f"{threads}, {blocks}, {cluster or 1}"
    return f'static host::Bounds {name}_bounds((const void*){scope}{name}, "{name}", {numbers});\n'


def _replace_asm(text: str) -> str:
    out, at = list[str](), 0
    for match in _ASM.finditer(text):
        end = _close(text, match.end())
        line = text.count("\n", 0, match.start()) + 1
        out += [text[at : match.start()], _call(text[match.end() : end], line)]
        if text[end + 1] != ";":
            raise TranslationError(f"line {line}: an asm statement without a semicolon")
        at = end + 1
    return "".join([*out, text[at:]])


def _close(text: str, at: int) -> int:
    """The position of the parenthesis that closes the one before ``at``."""
    depth = 1
    while True:
        if text[at] == '"':
            at = _string(text, at)
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
        at += 1


def _string(text: str, at: int) -> int:
    found = re.compile(_STRING).match(text, at)
    if found is None:
        raise TranslationError("a string without an end")
    return found.end()


def _sections(inside: str) -> Iterator[str]:
    """Pieces between colons outside of strings and parentheses."""
    depth, start, at = 0, 0, 0
    while at < len(inside):
        c = inside[at]
        if c == '"':
            at = _string(inside, at)
            continue
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(c, 0)
        if c == ":" and depth == 0:
            yield inside[start:at]
            start = at + 1
        at += 1
    yield inside[start:]


def _operands(section: str) -> list[Operand]:
    out, at = list[Operand](), 0
    while found := re.compile(rf"\s*,?\s*({_STRING})\s*\(").match(section, at):
        end = _close(section, found.end())
        out.append(Operand(found[1][1:-1], section[found.end() : end]))
        at = end + 1
    if section[at:].strip():
        raise TranslationError(f"operands {section!r}")
    return out


def _call(inside: str, line: int) -> str:
    ptx, outputs, inputs, *_ = [*_sections(inside), "", "", ""]
    outs, ins = _operands(outputs), _operands(inputs)
    keeps = "mma_async" in ptx  # it reads its registers after the statement
    args = [f"host::place<'{o.constraint[-1]}'>({o.text})" for o in outs]
    for o in ins:
        if o.constraint == "n":
            args += ["(void*)0", f"host::constant<({o.text})>()"]
        else:
            args += [f"host::kept({o.text})" if keeps else "(void*)0", f"host::bits<'{o.constraint}'>({o.text})"]
    constraints = ",".join(o.constraint for o in (*outs, *ins))
    site = f'static host::Site asm_site = {{{ptx.strip()}, "{constraints}", {line}, nullptr}};'
    return f"do {{ {site} host::execute({', '.join(['&asm_site', *args])}); }} while (0)"
