"""Parser of the MA-tile IR: the declarations of a kernel; its ops are read by their own assembly formats."""

from __future__ import annotations

import re
from typing import Any

from nautilus.core.expr.nodes import Expr
from nautilus.core.source import Source
from nautilus.core.text.assembly import Reader, form_of
from nautilus.core.text.declarations import Declarations
from nautilus.core.text.tokens import TokenStream
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, MemOp
from nautilus.ma_tile.ir.values import MA, Mbar, PipelineState, Smem

_MODE = re.compile(r"(?<=:)(\d+)x(\d+)")  # the lexer knows no '2x8'; same length, so places stay right


def parse(text: str, name: str = "<ma-tile>") -> MemModule:
    """The module that ``text`` is, whole. Raises IRParseError."""
    ts = TokenStream(Source(name, _MODE.sub(r"\1*\2", text)))
    ts.source = Source(name, text)
    r = Reader(ts, MA.forms)
    ts.expect("module")
    module = ts.name()
    target = _word(ts, "target")
    declared = Declarations(ts, r.params)
    kernels = r.module(_kernel, declared)
    return MemModule(module, target, declared.buffers, declared.params, kernels)


def _kernel(r: Reader) -> MemKernel:
    """A kernel; a ``let`` in front of all other parts is one of the grid, a later one is an op."""
    ts, span = r.ts, r.ts.span()
    name = _word(ts, "kernel")
    ts.expect("grid")
    blocks, warps, min_blocks = r.expr(), _count(ts, "warps"), _count(ts, "min_blocks")
    consumers, cluster = (_count(ts, word) if ts.text == word else 1 for word in ("consumers", "cluster"))
    decode: list[tuple[str, Expr]] = []
    layouts: dict[str, FragLayout] = {}
    parts: dict[type, list[Any]] = {Smem: [], Mbar: [], PipelineState: []}
    words = {form_of(cls).keywords[0]: cls for cls in parts}
    body: list[MemOp] = []
    with ts.braces() as more:
        while more():
            if ts.text == "let" and not (layouts or body or any(parts.values())):
                var = _word(ts, "let")
                ts.expect("=")
                decode.append((var, r.expr()))
            elif ts.accept("layout"):
                key = ts.hash()
                ts.expect("=")
                layouts[key] = _layout(ts)
            elif ts.text in words:
                cls = words[ts.text]
                parts[cls].append(cls(**form_of(cls).read(r)))
            else:
                body.append(r.op())
    smem, mbars, pipelines = (tuple(found) for found in parts.values())
    ops = tuple(body)
    head = (name, blocks, warps, min_blocks, tuple(decode), layouts)
    return MemKernel(*head, smem, mbars, ops, span, consumers, pipelines, cluster)


def _word(ts: TokenStream, word: str) -> str:
    ts.expect(word)
    return ts.name()


def _count(ts: TokenStream, word: str) -> int:
    ts.expect(word)
    return ts.integer()


def _layout(ts: TokenStream) -> FragLayout:
    def mode() -> Mode:
        axis = None if ts.accept("*") else ts.name()
        ts.expect(":")
        size = ts.integer()
        if axis is None:
            return Mode(size, None)
        ts.expect("*")  # written x; see _MODE
        return Mode(size, axis, ts.integer())

    parts: list[tuple[Mode, ...]] = []
    for word in ("reg", "lane", "warp"):
        ts.expect(word)
        parts.append(ts.brackets(mode, "()"))
    return FragLayout(*parts)
