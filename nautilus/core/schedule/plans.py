"""The records of a schedule: axes, kernels, cuts of axes, and the schedule itself.

A kernel computes the definitions ``ops`` (names of Scalar-level buffers, in dependence order) over named *axes*.
Names are those of the Scalar IR after ``fuse`` (one name a unified axis).

``phases`` lists, for the ``loop`` axis, which ops share one loop over it; an op that depends on the complete result
of another in the *same* phase is updated by ``rolling-update``.
"""

from dataclasses import field
from typing import Annotated, Literal

from nautilus.core.records import dataclass
from nautilus.core.schedule.json import read_json, written
from nautilus.core.schedule.mapping import MappingPlan, WarpPlan
from nautilus.core.schedule.options import option, record

Role = Literal["grid", "loop", "tile"]
IterationOrder = Literal["ascending", "mixed-first"]
RescalePolicy = Literal["always", "skip", "lazy", "auto"]

VERSION = 2
MAX_SPLITS = 1024  # chunks of a reduction
_MAX_TILE = 1 << 20  # elements: far beyond what any memory holds
_SCALAR = ("fuse", "split", "reorder", "rolling-update")


@record
@dataclass(frozen=True, slots=True)
class AxisPlan:
    """How a kernel iterates over one of its axes."""

    name: Annotated[str, option("The axis.", read_by=_SCALAR)]
    role: Annotated[
        Role,
        option(
            "grid: independent blocks, each with tile elements; loop: a sequential loop in each block in steps of "
            "tile; tile: the whole extent is in one tile.",
            read_by=_SCALAR,
        ),
    ]
    tile: Annotated[
        int,
        option(
            "Elements of the axis that a block or a loop iteration takes at once; for role tile the extent, rounded "
            "up.",
            unit="elements", low=1, high=_MAX_TILE, read_by=_SCALAR,
        ),
    ]  # fmt: skip


@record
@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel: what it computes, how it iterates over its axes, how it is mapped onto the machine."""

    name: Annotated[str, option("The kernel.", read_by=("fuse",))]
    ops: Annotated[
        tuple[str, ...],
        option("The definitions that the kernel computes, in dependence order.", read_by=("fuse",)),
    ]
    axes: Annotated[
        tuple[AxisPlan, ...],
        option("The axes of the kernel, outer ones first.", read_by=_SCALAR),
    ]
    phases: Annotated[
        tuple[tuple[str, ...], ...],
        option("The definitions that share each loop over the loop axis, in order.", read_by=("reorder",)),
    ] = ()
    partition: Annotated[
        bool,
        option(
            "Cut loops where a condition changes its value, so that most iterations need no mask.",
            read_by=("partition",),
        ),
    ] = True
    iteration_order: Annotated[
        IterationOrder,
        option(
            "Order of the pieces of a partitioned loop: mixed-first starts with a piece whose conditions vary.",
            read_by=("partition",),
        ),
    ] = "ascending"
    rescale_policy: Annotated[
        RescalePolicy,
        option(
            "When the running results of a rolling update are rescaled: always; skip leaves the multiplication out "
            "while the factor is 1; lazy postpones it until the postponed factor exceeds 2^lazy_bits, which must be "
            "proved safe; auto is lazy where that is proved, else skip.",
            read_by=("lazy-rescale",),
        ),
    ] = "always"
    lazy_bits: Annotated[
        int,
        option(
            "Binary logarithm of the largest factor that lazy rescaling postpones.",
            unit="bits", low=1, high=64, read_by=("lazy-rescale",),
        ),
    ] = 8  # fmt: skip
    mapping: Annotated[
        MappingPlan,
        option("The mapping of the kernel onto the machine, by its engine.", read_by=("ma-tile",)),
    ] = field(default_factory=WarpPlan)

    def axis(self, name: str) -> AxisPlan:
        """The plan of axis ``name``. Raises KeyError."""
        for a in self.axes:
            if a.name == name:
                return a
        raise KeyError(name)


@record
@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Split-K: reduction ``op`` in independent chunks of one of its axes.

    Reductions with equal cuts share their chunks.  Chunks past the end of the axis are empty.  A later cut of the same
    reduction cuts its combination into groups; its ``axis`` is the one that numbers the chunks.
    """

    op: Annotated[str, option("The reduction.", read_by=("split-k-update",))]
    axis: Annotated[str, option("Its axis, by its own name.", read_by=("split-k-update",))]
    splits: Annotated[
        int,
        option("Chunks of the axis.", unit="chunks", low=2, high=MAX_SPLITS, read_by=("split-k-update",)),
    ]
    tile: Annotated[
        int,
        option(
            "Chunks are whole multiples of this many elements.",
            unit="elements", low=1, high=_MAX_TILE, read_by=("split-k-update",),
        ),
    ]  # fmt: skip
    interleave: Annotated[
        int,
        option(
            "Interleaved split: this many neighbouring chunks share one range, whose tiles they take in rotation; "
            "divides splits.",
            unit="chunks", low=1, high=MAX_SPLITS, read_by=("split-k-update",),
        ),
    ] = 1  # fmt: skip


@record
@dataclass(frozen=True, slots=True)
class PackPlan:
    """A split of an axis into groups and positions in a group, so that points with common operands share row tiles."""

    op: Annotated[str, option("A definition that has the axis.", read_by=("pack",))]
    axis: Annotated[str, option("The axis, in it and in what is unified with it.", read_by=("pack",))]
    size: Annotated[
        int,
        option("Elements of a group.", unit="elements", low=2, high=_MAX_TILE, read_by=("pack",)),
    ]


@record
@dataclass(frozen=True, slots=True)
class CopyPlan:
    """A definition that some readers compute again for themselves, so that it need not be stored for them."""

    op: Annotated[str, option("The definition.", read_by=("rematerialise",))]
    readers: Annotated[
        tuple[str, ...],
        option("The definitions that read a copy of it, and share that copy.", read_by=("rematerialise",)),
    ]


@record
@dataclass(frozen=True, slots=True)
class Schedule:
    """All choices for one spec.

    ``packs``, and after them ``splits``, cut axes in two before definitions become kernels.  None stands for the choice
    of the default rule, or for no cut if ``kernels`` are given; the same holds for ``copies``.
    """

    inline: Annotated[
        tuple[str, ...] | None,
        option(
            "The definitions that are substituted into their readers, in that order; null leaves it to the rule.",
            read_by=("inline",),
        ),
    ] = None
    kernels: Annotated[
        tuple[KernelPlan, ...],
        option("The kernels; none leaves them to the rules.", read_by=("fuse", "ma-tile")),
    ] = ()
    factor: Annotated[
        bool,
        option("Take invariant factors out of sums.", read_by=("factor",)),
    ] = True
    narrow: Annotated[
        bool,
        option(
            "Narrow computed factors of products to the type of the other factor.",
            read_by=("narrow", "defer-roundings"),
        ),
    ] = True
    narrow_to_bytes: Annotated[
        bool | None,
        option(
            "Narrow computed factors to f8e4m3 where they meet a tensor of 8-bit floats, are made from such tensors, "
            "and only outputs of at most 16 bits depend on them; null leaves it to the cost model.",
            read_by=("narrow",),
            newer=True,
        ),
    ] = None
    decompose_operands: Annotated[
        bool,
        option(
            "Multiply matrices of f32 on matrix units, each operand as the sum of two tf32 numbers or, for warpgroups, "
            "of three bf16 numbers that a kernel stores. The stated error bound includes it. Precision strict never "
            "does so.",
            read_by=("decompose-operands",),
            newer=True,
        ),
    ] = True
    version: Annotated[
        int,
        option("The version of this format.", values=(VERSION,)),
    ] = VERSION
    packs: Annotated[
        tuple[PackPlan, ...] | None,
        option("Axes that are cut into groups; null leaves it to the rule.", read_by=("pack",)),
    ] = None
    splits: Annotated[
        tuple[SplitPlan, ...] | None,
        option("Reductions that are cut into chunks; null leaves it to the rule.", read_by=("split-k-update",)),
    ] = None
    scatters: Annotated[
        tuple[str, ...] | None,
        option(
            "Reductions under an equation with a key whose terms are combined into their elements; null leaves it to "
            "the rule.",
            read_by=("scatter",),
            newer=True,
        ),
    ] = None
    copies: Annotated[
        tuple[CopyPlan, ...] | None,
        option(
            "Definitions that some readers compute again, in that order; null leaves it to the cost model.",
            read_by=("rematerialise",),
            newer=True,
        ),
    ] = None
    batch_invariant: Annotated[
        bool,
        option(
            "The default rule for splits looks at the fixed size of the cut axis alone, so that every batch size gives "
            "the same bits.",
            read_by=("planner",),
        ),
    ] = False

    def to_json(self) -> str:
        """Readable JSON, stable under repetition."""
        return written(self)

    @staticmethod
    def from_json(text: str) -> "Schedule":
        """Parse the text of :meth:`to_json`; absent fields have their defaults.

        Raises ValueError with the fault and its place for any other text.
        """
        return read_json(Schedule, text, VERSION)


def parts_allowed(precision: str, schedule: Schedule | None) -> bool:
    """Whether products of f32 may be computed in parts of narrower types."""
    return precision == "fast" and (schedule is None or schedule.decompose_operands)
