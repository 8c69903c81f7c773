"""Parser of the text form of the MA-tile IR (grammar: ``ma_tile.ir.ops``; printer: ``ma_tile.text.printer``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from nautilus.core.expr.nodes import COMBINERS, OPS, Expr
from nautilus.core.source import Source
from nautilus.core.text.declarations import Declarations
from nautilus.core.text.expressions import ExprParser
from nautilus.core.text.tokens import TokenStream
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout, Mode
from nautilus.ma_tile.ir.ops import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    ConstOp,
    ConvertOp,
    ForOp,
    Frag,
    GlobalLoad,
    GlobalStore,
    IfOp,
    IndexOp,
    MapOp,
    MatrixLoad,
    Mbar,
    MbarArrive,
    MbarWait,
    MemKernel,
    MemModule,
    MemOp,
    MmaOp,
    ParamOp,
    PipelineState,
    ReduceOp,
    Role,
    RolesOp,
    SharedLoad,
    SharedStore,
    SliceOp,
    Slot,
    Smem,
    UndefinedOp,
)

_MODE = re.compile(r"(?<=:)(\d+)x(\d+)")  # the lexer knows no '2x8'; same length, so places stay right


def parse(text: str, name: str = "<ma-tile>") -> MemModule:
    """The module that ``text`` is, whole. Raises IRParseError."""
    ts = TokenStream(Source(name, _MODE.sub(r"\1*\2", text)))
    ts.source = Source(name, text)
    module = Parser(ts).module()
    ts.end()
    return module


class Parser:
    """Recursive descent over the grammar of ``ma_tile.ir.ops``; ``frags`` maps the names seen so far.

    A ``let`` before the first declaration or op of a kernel is one of the grid, any later one is an op.
    """

    def __init__(self, ts: TokenStream) -> None:
        self.ts = ts
        self.params: dict[str, DType] = {}
        self.frags: dict[str, Frag] = {}
        self.dtypes: dict[str, DType] = {}
        self.exprs = ExprParser(ts, {}, self.params, self.dtypes)
        self.expr = self.exprs.parse

    # -- declarations -------------------------------------------------------------------------
    def module(self) -> MemModule:
        ts = self.ts
        ts.expect("module")
        name = ts.name()
        ts.expect("target")
        target = ts.name()
        declared, kernels = Declarations(ts, self.params), list[MemKernel]()
        with ts.braces() as more:
            while more():
                if declared.accept():
                    continue
                if ts.text != "kernel":
                    ts.fail(f"expected input, output, temp, param or kernel, found {ts.describe()}")
                kernels.append(self.kernel())
        return MemModule(name, target, declared.buffers, declared.params, tuple(kernels))

    def kernel(self) -> MemKernel:
        ts, span = self.ts, self.ts.span()
        self.frags.clear()
        self.dtypes.clear()
        ts.expect("kernel")
        name = ts.name()
        ts.expect("grid")
        blocks = self.expr()
        warps, min_blocks = self.field("warps"), self.field("min_blocks")
        units, cluster, early = self.option("units"), self.option("cluster"), ts.accept("early")
        decode, smem, mbars = list[tuple[str, Expr]](), list[Smem](), list[Mbar]()
        layouts: dict[str, FragLayout] = {}
        cursors, body = list[PipelineState](), list[MemOp]()
        with ts.braces() as more:
            while more():
                if ts.text == "let" and not (layouts or smem or mbars or cursors or body):
                    decode.append(self.binding())
                elif ts.accept("layout"):
                    key = ts.hash()
                    ts.expect("=")
                    layouts[key] = self.layout()
                elif ts.text == "smem":
                    smem.append(self.smem())
                elif ts.text == "mbar":
                    mbars.append(self.mbar())
                elif ts.accept("cursor"):
                    cursors.append(PipelineState(ts.name(), self.field("stages")))
                else:
                    body.append(self.op())
        parts = (tuple(decode), layouts, tuple(smem), tuple(mbars), tuple(body), span, units, tuple(cursors), cluster)
        return MemKernel(name, blocks, warps, min_blocks, *parts, early)

    def binding(self) -> tuple[str, Expr]:
        self.ts.expect("let")
        var = self.ts.name()
        self.ts.expect("=")
        return var, self.expr()

    def field(self, word: str) -> int:
        self.ts.expect(word)
        return self.ts.integer()

    def option(self, word: str) -> int:
        """A count that is 1 where it is not written."""
        return self.ts.integer() if self.ts.accept(word) else 1

    def axes(self) -> tuple[TileAxis, ...]:
        ts = self.ts

        def axis() -> TileAxis:
            name = ts.name()
            ts.expect(":")
            return TileAxis(name, ts.integer())

        return ts.brackets(axis)

    def layout(self) -> FragLayout:
        ts, parts = self.ts, list[tuple[Mode, ...]]()
        for word in ("reg", "lane", "warp"):
            ts.expect(word)
            parts.append(ts.brackets(self.mode, "()"))
        return FragLayout(parts[0], parts[1], parts[2])

    def mode(self) -> Mode:
        ts = self.ts
        axis = None if ts.accept("*") else ts.name()
        ts.expect(":")
        size = ts.integer()
        if axis is None:
            return Mode(size, None)
        ts.expect("*")  # written x; see _MODE
        return Mode(size, axis, ts.integer())

    def smem(self) -> Smem:
        ts = self.ts
        ts.expect("smem")
        name = ts.name()
        ts.expect(":")
        dtype, axes = ts.dtype(), self.axes()
        stages, swizzle, pad = self.field("stages"), self.field("swizzle"), self.field("pad")
        over = ts.name() if ts.accept("over") else None
        return Smem(name, dtype, axes, stages, swizzle, pad, self.field("@"), over)

    def mbar(self) -> Mbar:
        self.ts.expect("mbar")
        return Mbar(self.ts.name(), self.field("stages"), self.field("arrivals"), self.field("@"))

    # -- ops ----------------------------------------------------------------------------------
    def block(self) -> tuple[MemOp, ...]:
        body = list[MemOp]()
        with self.ts.braces() as more:
            while more():
                body.append(self.op())
        return tuple(body)

    def op(self) -> MemOp:
        ts = self.ts
        if ts.kind == "ref":
            return self.defining()
        parser = _STATEMENTS.get(ts.text) or warpgroup_statements().get(ts.text)
        if parser is None:
            ts.fail(f"expected an operation, found {ts.describe()}")
        return parser(self)

    def st_global(self) -> GlobalStore:
        ts, span = self.ts, self.ts.span()
        ts.expect("st.global")
        buffer = ts.name()
        index = ts.brackets(self.expr)
        ts.expect(",")
        return GlobalStore(buffer, index, self.use(), self.where(), self.field("vec"), span)

    def st_shared(self) -> SharedStore:
        ts, span = self.ts, self.ts.span()
        ts.expect("st.shared")
        slot, block = self.slot(), ts.integer() if ts.accept("block") else None
        ts.expect(",")
        return SharedStore(slot, self.use(), self.field("vec"), block, span)

    def cp_async(self) -> AsyncCopy:
        ts, span = self.ts, self.ts.span()
        ts.expect("cp.async")
        slot = self.slot()
        ts.expect(",")
        buffer = ts.name()
        index = ts.brackets(self.expr)
        mask, vec = self.where(), self.field("vec")
        ts.expect("threads")
        threads = ts.hash()
        mbar = self.ring() if ts.accept("mbar") else None
        return AsyncCopy(slot, buffer, index, mask, vec, threads, mbar, span)

    def cp_commit(self) -> AsyncCommit:
        span = self.ts.span()
        self.ts.expect("cp.commit")
        return AsyncCommit(span)

    def cp_wait(self) -> AsyncWait:
        span = self.ts.span()
        return AsyncWait(self.field("cp.wait"), span)

    def barrier(self) -> Barrier:
        ts, span = self.ts, self.ts.span()
        ts.expect("barrier")
        number = self.number() if ts.kind == "number" or ts.text == "(" else Barrier().number
        return Barrier(number, ts.integer() if ts.accept(",") else None, span)

    def number(self) -> Expr:
        """A barrier's number."""
        return self.expr()

    def ring(self) -> tuple[str, Expr]:
        name = self.ts.name()
        (stage,) = self.ts.brackets(self.expr)
        return name, stage

    def mbar_arrive(self) -> MbarArrive:
        span = self.ts.span()
        self.ts.expect("mbar.arrive")
        name, stage = self.ring()
        each = self.ts.name() if self.ts.accept("each") else "thread"
        return MbarArrive(name, stage, each, self.ts.accept("cluster"), span)

    def mbar_wait(self) -> MbarWait:
        span = self.ts.span()
        self.ts.expect("mbar.wait")
        name, stage = self.ring()
        self.ts.expect("parity")
        return MbarWait(name, stage, self.expr(), span)

    def if_op(self) -> IfOp:
        span = self.ts.span()
        self.ts.expect("if")
        cond = self.expr()
        return IfOp(cond, self.block(), span)

    def roles(self) -> RolesOp:
        ts, span, roles = self.ts, self.ts.span(), list[Role]()
        ts.expect("roles")
        with ts.braces() as more:
            while more():
                ts.expect("role")
                name, first = ts.name(), self.field("warps")
                last = self.field("..")
                registers = ts.integer() if ts.accept("registers") else None
                units, single = self.option("units"), ts.accept("single")
                roles.append(Role(name, first, last, registers, self.block(), units, single))
        return RolesOp(tuple(roles), span)

    def for_op(self, names: tuple[str, ...] = ()) -> ForOp:
        ts, span = self.ts, self.ts.span()
        ts.expect("for")
        var = ts.name()
        ts.expect("in")
        lo = self.expr()
        ts.expect("..")
        hi = self.expr()
        chain = ts.name() if ts.accept("chain") else None
        ts.expect("carry")
        carried = ts.brackets(self.carry, "()")
        body, yields = list[MemOp](), tuple[Frag, ...]()
        with ts.braces() as more:
            while more():
                if ts.accept("yield"):
                    yields = self.uses() if ts.kind == "ref" else ()
                    break
                body.append(self.op())
        if len(names) != len(carried):
            ts.fail(f"the loop carries {len(carried)} values and defines {len(names)}")
        results = tuple(self.define(n, arg.type, arg.layout) for n, (arg, _) in zip(names, carried, strict=True))
        return ForOp(results, var, lo, hi, carried, tuple(body), yields, chain, span)

    def carry(self) -> tuple[Frag, Frag]:
        name = self.ts.ref()
        self.ts.expect("=")
        init = self.use()
        return self.define(name, init.type, init.layout), init

    def defining(self) -> MemOp:
        ts, span = self.ts, self.ts.span()
        names = [ts.ref()]
        while ts.accept(","):
            names.append(ts.ref())
        ts.expect("=")
        if ts.text == "for":
            return self.for_op(tuple(names))
        if len(names) > 1:
            ts.fail("only a loop defines several fragments")
        op = ts.name()
        if op not in _RIGHT and op not in OPS:
            ts.pos -= 1
            ts.fail(f"unknown operation {op!r}")
        made = _RIGHT[op](self) if op in _RIGHT else ("map", op, self.uses())
        ts.expect(":")
        dtype = ts.dtype()
        axes = self.axes() if ts.text == "[" else ()
        frag = self.define(names[0], TileType(dtype, axes), ts.hash())
        return _build(frag, made, span)

    # -- right-hand sides: (kind, fields...) --------------------------------------------------
    def const(self) -> tuple[object, ...]:
        found = self.ts.literal(self.ts.accept("-"))
        if found is None:
            self.ts.fail(f"expected a number, found {self.ts.describe()}")
        return "const", found.value

    def index(self) -> tuple[object, ...]:
        return "index", self.expr()

    def param_of(self) -> tuple[object, ...]:
        return "param", self.ts.name()

    def reduce(self) -> tuple[object, ...]:
        ts = self.ts
        combiner = ts.name()
        if combiner not in COMBINERS:
            ts.pos -= 1
            ts.fail(f"unknown combiner {combiner!r}")
        arg = self.use()
        ts.expect("over")
        axes = [ts.name()]
        while ts.accept(","):
            axes.append(ts.name())
        scratch = ts.name() if ts.accept("scratch") else None
        return "reduce", combiner, arg, tuple(axes), scratch, ts.name() if ts.accept("into") else None

    def convert(self) -> tuple[object, ...]:
        return "convert", self.use()

    def slice(self) -> tuple[object, ...]:
        arg = self.use()
        self.ts.expect("at")
        return "slice", arg, self.ts.name(), self.ts.integer()

    def undefined(self) -> tuple[object, ...]:
        return ("undefined",)

    def ld_global(self) -> tuple[object, ...]:
        buffer = self.ts.name()
        index = self.ts.brackets(self.expr)
        return "ld.global", buffer, index, self.where(), self.field("vec"), self.ts.accept("pinned")

    def ld_shared(self) -> tuple[object, ...]:
        return "ld.shared", self.slot(), self.field("vec")

    def ld_matrix(self) -> tuple[object, ...]:
        slot = self.slot()
        self.ts.expect("at")
        return "ld.matrix", slot, self.ts.name(), self.ts.integer()

    def mma(self) -> tuple[object, ...]:
        ts = self.ts
        instr, a = ts.name(), self.operand()
        ts.expect(",")
        b = self.operand()
        acc = self.use() if ts.accept("+") else None
        ts.expect("over")
        over, ahead = ts.name(), ts.integer() if ts.accept("ahead") else 0
        pending = ts.accept("pending")
        return "mma", instr, a, b, acc, over, ahead, pending, self.expr() if ts.accept("fresh") else None

    # -- small parts --------------------------------------------------------------------------
    def operand(self) -> Frag | Slot:
        return self.slot() if self.ts.accept("smem") else self.use()

    def slot(self) -> Slot:
        name, stage = self.ring()
        return Slot(name, stage, self.ts.integer() if self.ts.accept("swizzle") else 0)

    def where(self) -> Expr | None:
        return self.expr() if self.ts.accept("where") else None

    def use(self) -> Frag:
        name = self.ts.ref()
        if name not in self.frags:
            self.ts.pos -= 1
            self.ts.fail(f"unknown fragment %{name}")
        return self.frags[name]

    def uses(self) -> tuple[Frag, ...]:
        out = [self.use()]
        while self.ts.accept(","):
            out.append(self.use())
        return tuple(out)

    def define(self, name: str, type_: TileType, layout: str) -> Frag:
        frag = Frag(name, type_, layout)
        self.frags[name] = frag
        self.dtypes[name] = type_.dtype
        return frag


def _build(frag: Frag, made: tuple[object, ...], span: object) -> MemOp:
    kind, *fields = made
    if kind == "const" and frag.type.dtype.is_float:
        fields = [float(str(fields[0]))]
    op: MemOp = _CLASSES[str(kind)](frag, *fields, span)
    return op


def warpgroup_statements() -> Mapping[str, Callable[[Parser], MemOp]]:
    """Those of ``ma_tile.ir.async_ops`` (imported late: they are written in terms of :class:`Parser`)."""
    from nautilus.ma_tile.text.parser_async import STATEMENTS

    return STATEMENTS


_STATEMENTS: Mapping[str, Callable[[Parser], MemOp]] = {
    "st.global": Parser.st_global, "st.shared": Parser.st_shared, "cp.async": Parser.cp_async,
    "cp.commit": Parser.cp_commit, "cp.wait": Parser.cp_wait, "barrier": Parser.barrier,
    "mbar.arrive": Parser.mbar_arrive, "mbar.wait": Parser.mbar_wait, "if": Parser.if_op,
    "for": Parser.for_op, "roles": Parser.roles,
}  # fmt: skip
_RIGHT: Mapping[str, Callable[[Parser], tuple[object, ...]]] = {
    "const": Parser.const, "index": Parser.index, "param": Parser.param_of, "reduce": Parser.reduce,
    "convert": Parser.convert, "slice": Parser.slice, "undefined": Parser.undefined,
    "ld.global": Parser.ld_global, "ld.shared": Parser.ld_shared,
    "ld.matrix": Parser.ld_matrix, "mma": Parser.mma,
}  # fmt: skip
_CLASSES: Mapping[str, Callable[..., MemOp]] = {
    "const": ConstOp, "index": IndexOp, "param": ParamOp, "map": MapOp, "reduce": ReduceOp,
    "convert": ConvertOp, "slice": SliceOp, "undefined": UndefinedOp, "ld.global": GlobalLoad, "ld.shared": SharedLoad,
    "ld.matrix": MatrixLoad, "mma": MmaOp,
}  # fmt: skip
