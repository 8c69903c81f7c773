"""What each op of the level touches, reads, defines and evaluates: one literal row an op class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from nautilus.core.ops import declaration
from nautilus.core.source import Source
from nautilus.core.text.assembly import Reader, format_op
from nautilus.core.text.expressions import format_expr
from nautilus.core.text.tokens import TokenStream
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.ma_tile.ir import traverse
from nautilus.ma_tile.ir.ops import Frag
from nautilus.ma_tile.ir.values import MA


@dataclass(frozen=True)
class Row:
    """``shared``: reads | writes | copies of slots; ``scratch``: other shared buffers."""

    text: str
    shared: str = "| |"
    reads: str = ""
    defines: str = ""
    exprs: str = ""
    effects: str = ""
    scratch: str = ""
    variables: str = ""


ROWS = [
    Row("%r = const 1.0 : f32 #l", defines="r"),
    Row("%r = index i + 1 split : i32 #l", defines="r", exprs="i + 1"),
    Row("%r = param eps : f32 #l", defines="r"),
    Row("%r = add %a, %b : f32 #l", reads="a b", defines="r"),
    Row("%r = reduce sum %a over i, j scratch s into k : f32 #l", reads="a", defines="r", scratch="s"),
    Row("%r = reduce sum %a times %b where %c over i : f32 #l", reads="a b c", defines="r"),
    Row("%r = scan sum %a over i into t reverse exclusive scratch s : f32 #l", reads="a", defines="r", scratch="s"),
    Row("%r = convert %a : f32 #l", reads="a", defines="r"),
    Row("%r = unpack u4 %c over k into h minus %a times %b : f16 #l", reads="a b c", defines="r"),
    Row("%r = slice %a at i 16 : f32 #l", reads="a", defines="r"),
    Row("%r = stack %a, %b over i : f32 #l", reads="a b", defines="r"),
    Row("%r = window %a over u into q s by 1 2 from 3 : f32 #l", reads="a", defines="r"),
    Row("%r = undefined : f32 #l", defines="r"),
    Row(
        "%r = ld.global X[i, %c + 1] where j < 3 vec 2 volatile : f32 #l",
        reads="c", defines="r", exprs="i; %c + 1; j < 3",
    ),
    Row("st.global X[i, j], %a where i < n vec 4", reads="a", exprs="i; j; i < n"),
    Row("%r = ld.shared s[t % 2] swizzle 64 vec 1 : f32 #l", "s| |", defines="r", exprs="t % 2"),
    Row("%r = ld.matrix s[1] at k 16 : f32 #l", "s| |", defines="r", exprs="1"),
    Row("st.shared s[0] block 2, %a vec 1", "|s|", reads="a", exprs="0"),
    Row("st.rows s[t], X[i, j] where i < n threads #l", "s| |", exprs="i; j; i < n; t"),
    Row("cp.async s[t], X[i] where i < n vec 4 threads #l mbar b[u]", "||s", exprs="i; i < n; u; t"),
    Row("cp.commit", effects="COMMIT"),
    Row("cp.wait 1", effects="WAIT"),
    Row("barrier (consumer + 1), 128", exprs="consumer + 1", effects="ARRIVE WAIT"),
    Row("mbar.arrive b[t] each warp cluster", exprs="t", effects="ARRIVE"),
    Row("mbar.wait b[t] parity p", exprs="t; p", effects="WAIT"),
    Row(
        "%r = mma wgmma.f16 %a, smem s[t] swizzle 128 + %b over k ahead 1 async zero_init t == 0 : f32 #l",
        "s| |", reads="a b", defines="r", exprs="t == 0; t",
    ),
    Row("%r = mma fma smem s[0], smem z[1] over k unroll 4 : f32 #l", "s z| |", defines="r", exprs="0; 1"),
    Row("if i < n {", exprs="i < n"),
    Row("%r = for t in 0..n chain c unroll 1 carry(%x = %a) {", reads="a x", defines="r", exprs="0; n", variables="t"),
    Row("roles {"),
    Row("let v = i * 2", exprs="i * 2", variables="v"),
    Row("advance c by n", exprs="n", effects="ADVANCE"),
    Row("tile.loop v, w in n static {", exprs="n", variables="v w"),
    Row("break if v >= n", exprs="v >= n", effects="LEAVE"),
    Row("tile.first v", variables="v", effects="ADVANCE"),
    Row("tile.fetch v", effects="ADVANCE COUNT"),
    Row("tile.reset v of n", exprs="v; n", effects="COUNT"),
    Row("queue.push s[t], v", "|s|", exprs="v; t"),
    Row("queue.pop v, s[t]", "s| |", exprs="t", variables="v"),
    Row("tma.load s[t] swizzle 128, X[i, j + k] mbar b[u] multicast 2 stream", "||s", exprs="i; j + k; u; t"),
    Row("tma.store s[t], X[i, j]", "s| |", exprs="i; j; t"),
    Row("tma.commit", effects="COMMIT"),
    Row("tma.wait 1 read", effects="WAIT"),
    Row("mbar.init", effects="INITIALISE"),
    Row("mbar.expect b[t] 1024", exprs="t", effects="ARRIVE"),
    Row("named.arrive 3, 256", exprs="3", effects="ARRIVE"),
    Row("st.matrix s[t] swizzle 128, %a", "|s|", reads="a", exprs="t"),
    Row("fence.proxy", effects="FENCE"),
    Row("wg.fence", effects="FENCE"),
    Row("wg.commit", effects="COMMIT"),
    Row("wg.wait 1 volatile %a, %b", reads="a b", effects="WAIT"),
    Row("cluster.arrive relaxed", effects="ARRIVE"),
    Row("cluster.wait", effects="WAIT"),
    Row("grid.wait", effects="WAIT"),
    Row("grid.launch_dependents", effects="ARRIVE"),
]  # fmt: skip


def op_of(text: str) -> Any:
    """The op of a row, an empty region closed; %a and %b are f32, %c is i32."""
    end = " yield %x }" if " carry" in text else " }" if text.endswith("{") else ""
    r = Reader(TokenStream(Source("row", text + end)), MA.forms)
    for name, dtype in (("a", DType.F32), ("b", DType.F32), ("c", DType.I32)):
        r.define(Frag(name, TileType(dtype), "l"))
    found = r.op()
    r.ts.end()
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.text.split(" = ")[-1].split()[0])
def test_rows(row: Row) -> None:
    op = op_of(row.text)
    assert format_op(op) == row.text
    touch = traverse.touch(op)
    shared = [" ".join(s.buffer for s in part) for part in (touch.reads, touch.writes, touch.copies)]
    assert shared == [part.strip() for part in row.shared.split("|")]
    assert sorted(traverse.reads(op)) == row.reads.split()
    assert [f.name for f in traverse.defined(op)] == row.defines.split()
    assert "; ".join(map(format_expr, traverse.expressions(op))) == row.exprs
    assert {e.name for e in declaration(type(op)).effects} == set(row.effects.split())
    names = [s.buffer for s in touch.all] + row.scratch.split()
    assert list(traverse.buffers_of(op)) == names
    assert list(traverse.variables(op)) == row.variables.split()


def test_there_is_a_row_for_every_op() -> None:
    assert {type(op_of(r.text)) for r in ROWS} == set(MA.ops)


def test_slots_are_replaced_where_they_are_touched() -> None:
    for row in ROWS:
        op = op_of(row.text)
        new = traverse.map_slots(op, lambda s: type(s)(s.buffer + "2", s.stage))
        assert [s.buffer for s in traverse.touch(new).all] == [s.buffer + "2" for s in traverse.touch(op).all]
        assert traverse.map_slots(op, lambda s: s) is op
        assert traverse.rebuild((op,), lambda x: (x,)) == (op,)


def test_an_undeclared_op_is_an_error() -> None:
    @dataclass(frozen=True)
    class Strange:
        pass

    strange: Any = Strange()
    for f in (traverse.touch, traverse.reads, traverse.defined, traverse.expressions, traverse.deep_touch):
        with pytest.raises(TypeError, match="Strange is not a declared op"):
            f(strange)
