"""What MA-tile ops name: fragments, shared buffers, mbarriers, pipeline states; and the roles of such fields."""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.expr.nodes import Expr
from nautilus.core.op_fields import DTYPE, EXPR, INTEGER, NAME, TILE_AXES, TYPE, UNWRITTEN
from nautilus.core.ops import Access, FieldRole, Kind, Level, declare, part
from nautilus.core.text import syntax
from nautilus.core.text.assembly import Reader, Syntax
from nautilus.core.text.expressions import format_expr
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.ma_tile.ir.layout import FragLayout, Mode, SmemLayout, tile_shape

LAYOUT = FieldRole(Kind.LAYOUT, syntax.LAYOUT)


@part("$type $layout")
class Frag:
    """A fragment value: a tile held in registers under the kernel's layout ``layout``."""

    name: str = declare(UNWRITTEN)
    type: TileType = declare(TYPE)
    layout: str = declare(LAYOUT)


#: the ops of this IR; complete after :mod:`nautilus.ma_tile.ir.ops`
MA = Level("ma-tile", "fragment", Frag)


@part("smem $name : $dtype[$axes] stages $stages swizzle $swizzle pad $pad( over $over)? @ $offset")
class Smem:
    """A shared buffer of ``stages`` equal stages; ``axes`` last contiguous; ``offset`` in bytes.

    ``over``: the buffer that it aliases, from the same offset on.  A pass that aliases two buffers guarantees that a
    stage of one is not in use while the other uses the bytes.
    """

    name: str = declare(NAME)
    dtype: DType = declare(DTYPE)
    axes: tuple[TileAxis, ...] = declare(TILE_AXES)
    stages: int = declare(INTEGER, default=1)
    swizzle: int = declare(INTEGER, default=0)
    pad: int = declare(INTEGER, default=0)
    offset: int = declare(INTEGER, default=0)
    over: str | None = declare(NAME, default=None)

    def layout(self, swizzle: int | None = None) -> SmemLayout:
        """Placement inside one stage for an access with ``swizzle`` (None: that of the buffer)."""
        rows, cols = tile_shape(self.axes)
        return SmemLayout(rows, cols, self.dtype, self.swizzle if swizzle is None else swizzle, self.pad)

    @property
    def stage_bytes(self) -> int:
        """Bytes of one stage."""
        return self.layout().bytes

    @property
    def bytes(self) -> int:
        """Bytes of all stages."""
        return self.stages * self.stage_bytes

    def overlaps(self, other: Smem) -> bool:
        """Whether the two buffers share bytes."""
        return self.offset < other.offset + other.bytes and other.offset < self.offset + self.bytes


@part("mbar $name stages $stages arrivals $arrivals @ $offset")
class Mbar:
    """One mbarrier for each of ``stages`` stages, 8 bytes each at ``offset``; a phase has ``arrivals`` arrivals."""

    name: str = declare(NAME)
    stages: int = declare(INTEGER)
    arrivals: int = declare(INTEGER)
    offset: int = declare(INTEGER, default=0)


@part("$buffer[$stage]( swizzle $swizzle)?")
class Slot:
    """Stage ``stage`` of shared buffer ``buffer``, addressed with ``swizzle``."""

    buffer: str = declare(NAME)
    stage: Expr = declare(EXPR)
    swizzle: int = declare(INTEGER, default=0)


@part("pipeline $name stages $stages")
class PipelineState:
    """A position in a pipeline of ``stages``: the variables ``NAME_stage`` (from 0) and ``NAME_phase`` (from 0).

    Every role, and every consumer of a role, has its own copy.  ``advance`` moves it to the next stage and
    flips the phase when the stage wraps to 0.
    """

    name: str = declare(NAME)
    stages: int = declare(INTEGER)

    @property
    def stage(self) -> str:
        """The variable that holds the stage number."""
        return f"{self.name}_stage"

    @property
    def phase(self) -> str:
        """The variable that counts how often the stage has wrapped to 0, modulo 2."""
        return f"{self.name}_phase"


def _show_operand(x: Frag | Slot) -> str:
    return f"%{x.name}" if isinstance(x, Frag) else f"smem {_SLOT.show(x)}"


def _read_operand(r: Reader) -> Frag | Slot:
    found: Frag | Slot = _SLOT.read(r) if r.ts.accept("smem") else r.use()
    return found


def _read_stage(r: Reader) -> tuple[str, Expr]:
    name = r.ts.take()
    (stage,) = r.ts.brackets(r.expr)
    return name, stage


def _lets(decode: tuple[tuple[str, Expr], ...]) -> list[str]:
    return [f"let {var} = {format_expr(e)}" for var, e in decode]


def _read_lets(r: Reader) -> tuple[tuple[str, Expr], ...]:
    out: list[tuple[str, Expr]] = []
    while r.ts.accept("let"):
        var = r.ts.take()
        r.ts.expect("=")
        out.append((var, r.expr()))
    return tuple(out)


def _layouts(layouts: Mapping[str, FragLayout]) -> list[str]:
    return [f"layout #{name} = {layout}" for name, layout in layouts.items()]


def _read_layouts(r: Reader) -> dict[str, FragLayout]:
    out: dict[str, FragLayout] = {}
    while r.ts.accept("layout"):
        name, parts = r.ts.take("hash"), list[tuple[Mode, ...]]()
        r.ts.expect("=")
        for word in ("reg", "lane", "warp"):
            r.ts.expect(word)
            parts.append(r.ts.brackets(lambda: _read_mode(r), "()"))
        out[name] = FragLayout(*parts)
    return out


def _read_mode(r: Reader) -> Mode:
    copies = r.ts.accept("*")
    axis = None if copies else r.ts.take()
    r.ts.expect(":")
    if axis is None:
        return Mode(r.ts.integer(), None)
    size, _, stride = r.ts.take("extent").partition("x")
    return Mode(int(size), axis, int(stride))


#: variables of the grid, in terms of ``block``: each ``let`` in front of all other parts of a kernel
_LAYOUT = (
    ("layout", "'layout' '#'NAME '=' 'reg' modes 'lane' modes 'warp' modes"),
    ("modes", "'(' [mode, ...] ')'"),
    ("mode", "AXIS ':' NUMBER 'x' NUMBER | '*' ':' NUMBER"),
)
DECODE = FieldRole(Kind.ATTRIBUTE, Syntax("let*", str, _read_lets, items=_lets, uses=(("let", "'let' NAME '=' expr"),)))
LAYOUTS = FieldRole(Kind.ATTRIBUTE, Syntax("layout*", str, _read_layouts, items=_layouts, uses=_LAYOUT))
_SLOT = syntax.part(Slot, "slot")
READ_SLOT = FieldRole(Kind.SLOT, _SLOT, Access.READ)
WRITE_SLOT = FieldRole(Kind.SLOT, _SLOT, Access.WRITE)
COPY_SLOT = FieldRole(Kind.SLOT, _SLOT, Access.COPY)
#: a fragment, or a slot that is read
OPERAND_OR_SLOT = FieldRole(
    Kind.OPERAND, Syntax("(value | 'smem' slot)", _show_operand, _read_operand, uses=_SLOT.uses), Access.READ
)
SCRATCH = FieldRole(Kind.SCRATCH, syntax.NAME)
STATE = FieldRole(Kind.STATE, syntax.NAME)
BARRIER = FieldRole(Kind.BARRIER, syntax.NAME)
#: the name of an mbarrier and its stage
BARRIER_STAGE = FieldRole(
    Kind.BARRIER, Syntax("NAME '[' expr ']'", lambda b: f"{b[0]}[{format_expr(b[1])}]", _read_stage)
)
