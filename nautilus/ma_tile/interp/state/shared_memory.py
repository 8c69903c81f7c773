"""Shared memory of one block: bytes, and the last writer and readers of each byte with their times.

Order between threads is *happens-before*, kept as vector clocks.  A *component* is a role (all its
threads advance together; component 0 is the code outside any role) or the copy engine of one
mbarrier.  An access is stamped with its component's time; thread u of component c has seen it if u
made it itself, or if the stamp lies below ``vc[component]`` of c, which barriers and mbarrier waits
raise.  So threads of one warp are *not* ordered against each other without a barrier.

State is kept a *granule* (the narrowest element of the kernel's buffers).  The stamp ``_NEVER``
lies above every clock; it marks bytes never written and bytes of a pending copy, so that
the common check is one comparison.

``thread`` arguments broadcast against addresses: a thread number in the block, or ``MANY`` for
several threads (an access that every warp makes).

Engines (TMA and wgmma) access memory through another *proxy*: they see what threads wrote only after a
``fence.proxy`` of the writer and then a barrier.  They read from issue to a wait.  A *pending read* forbids all
writes to the bytes until its release, which counts as one more read.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nautilus.core.functions.arrays import every, some
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.ma_tile.interp.state.values import Fault
from nautilus.ma_tile.ir.layout import Ints

MANY = -2
ENGINE = -3
_NOBODY = -1
_NEVER = np.int32(2**30)
_CLEAN, _WRITTEN, _FENCED = 0, 1, 2


class Clock:
    """The vector clock of one component: ``vc[c]`` is the first time of ``c`` not yet seen."""

    __slots__ = ("component", "vc")

    def __init__(self, component: int, vc: NDArray[np.int32]) -> None:
        self.component, self.vc = component, vc


@dataclass(slots=True)
class Flight:
    """A pending copy: destination addresses, the bits, and the thread that issued it."""

    address: Ints
    bits: Array
    thread: Array
    op: int
    tma: bool = False


@dataclass(slots=True)
class PendingRead:
    """Granules that an engine may read until :meth:`SharedMemory.release`, for ``who``."""

    granules: Ints
    who: Array
    op: int


class SharedMemory:
    """``size`` bytes and their history; ``components`` clocks, of which ``roles`` are of threads."""

    def __init__(self, size: int, granule: int, components: int, roles: int) -> None:
        self.size, self.granule = size, granule
        self.bytes = np.full(-(-size // 16) * 16, 0xFF, np.uint8)
        n = len(self.bytes) // granule
        self.time = np.zeros(components, np.int32)
        self.writer = np.full(n, _NOBODY, np.int32)
        self.written = np.full(n, _NEVER, np.int32)
        self.component = np.zeros(n, np.int16)
        self.writer_op = np.zeros(n, np.int32)
        self.pending = np.zeros(n, np.bool_)
        self.reader = np.full((roles, n), _NOBODY, np.int32)
        self.read_at = np.full((roles, n), -1, np.int32)
        self.reader_op = np.zeros((roles, n), np.int32)
        self.proxy = np.zeros(n, np.int8)
        self.fenced = np.zeros(n, np.int32)
        self.held = np.zeros(n, np.int16)
        self.holder = np.zeros(n, np.int32)
        self.pending_reads = 0

    # -- accesses -----------------------------------------------------------------------------
    def load(self, clock: Clock, address: Ints, width: int, thread: Array, op: int) -> Array:
        """The bits of ``width``-byte elements at ``address``. Raises Fault."""
        g = self._granules(address, width)
        who = _each(thread)
        self._check_read(clock, g, who)
        self._note_read(clock, g, who, op)
        view: Array = self.bytes.view(f"u{width}")
        return view[address // width]

    def store(self, clock: Clock, address: Ints, bits: Array, thread: Array, op: int) -> None:
        """Write ``bits`` (unsigned, any width) at ``address``. Raises Fault."""
        width = bits.dtype.itemsize
        g = self._granules(address, width)
        who = _each(thread)
        self._check_write(clock, g, who)
        self._put(address, bits, g, who)
        self.written[g] = self.time[clock.component]
        self.component[g] = clock.component
        self.writer_op[g] = op
        self.proxy[g] = _WRITTEN

    def issue(self, clock: Clock, flight: Flight) -> None:
        """Start a copy: the bytes are undefined until :meth:`land`. Raises Fault."""
        g = self._granules(flight.address, flight.bits.dtype.itemsize)
        who = _each(flight.thread)
        self._check_write(clock, g, who)
        if flight.tma:
            self._check_proxy(clock, g, who)
        width = flight.bits.dtype.itemsize
        self.bytes.view(flight.bits.dtype)[flight.address // width] = (1 << 8 * width) - 1
        self.pending[g] = True
        self.written[g] = _NEVER
        self.writer[g] = who
        self.writer_op[g] = flight.op

    def land(self, flight: Flight, component: int, engine: bool) -> None:
        """A copy arrives now; its writer is the issuing thread, or the engine of an mbarrier."""
        g = self._granules(flight.address, flight.bits.dtype.itemsize)
        who = _each(flight.thread)
        self.pending[g] = False
        self._put(flight.address, flight.bits, g, np.full_like(who, ENGINE) if engine else who)
        self.written[g] = self.time[component]
        self.component[g] = component
        self.proxy[g] = _CLEAN if flight.tma else _WRITTEN

    # -- engines ------------------------------------------------------------------------------
    def fetch(self, clock: Clock, address: Ints, width: int, thread: Array, op: int) -> tuple[Array, PendingRead]:
        """The bits that an engine reads, and the pending read. Raises Fault."""
        g = self._granules(address, width)
        who = _each(thread)
        self._check_read(clock, g, who)
        self._check_proxy(clock, g, who)
        self.held[g] += 1
        self.holder[g] = op
        self.pending_reads += 1
        view: Array = self.bytes.view(f"u{width}")
        return view[address // width], PendingRead(g, who, op)

    def release(self, clock: Clock, pending_read: PendingRead) -> None:
        """End a pending read; it becomes a completed read."""
        self.held[pending_read.granules] -= 1
        self.pending_reads -= 1
        self._note_read(clock, pending_read.granules, pending_read.who, pending_read.op)

    def fence(self, clock: Clock) -> None:
        """``fence.proxy`` of all threads of a component."""
        mine = np.flatnonzero((self.proxy == _WRITTEN) & (self.component == clock.component))
        self.proxy[mine] = _FENCED
        self.fenced[mine] = self.time[clock.component]

    def _check_proxy(self, clock: Clock, g: Ints, who: Array) -> None:
        state = self.proxy[g]
        if not some(state):
            return
        late = (self.fenced[g] >= clock.vc[self.component[g]]) & ((self.writer[g] != who) | (who < 0))
        bad = (state == _WRITTEN) | ((state == _FENCED) & late)
        if some(bad):
            first = int(g[bad][0])
            never = self.proxy[first] == _WRITTEN
            what = "no fence.proxy since" if never else "a fence.proxy without a barrier after it"
            text = f"an engine uses bytes that threads wrote, with {what}"
            raise OpFault("missing-fence", text, self.writer_op[first], "written by")

    def _put(self, address: Ints, bits: Array, g: Ints, who: Array) -> None:
        """Set bytes and writers; lanes that write one element must agree on it."""
        view: Array = self.bytes.view(bits.dtype)
        element = address // bits.dtype.itemsize
        view[element] = bits
        if not np.array_equal(view[element], bits):
            raise Fault("unordered-writes", "two threads write different values to the same bytes at once")
        self.writer[g] = who
        clash = self.writer[g] != who
        if some(clash):
            self.writer[g[clash]] = MANY

    def _granules(self, address: Ints, width: int) -> Ints:
        least, most = (int(address.min()), int(address.max())) if address.size else (0, -width)
        if least < 0 or most + width > self.size:
            worst = least if least < 0 else most
            raise Fault("out-of-bounds", f"shared address {worst} is outside {self.size} bytes")
        if some(address % width):
            raise Fault("misaligned", f"a shared address is not a multiple of the {width}-byte element")
        if width == self.granule:
            return address[..., None] // width
        step = np.arange(width // self.granule, dtype=np.int64)
        return address[..., None] // self.granule + step

    # -- rules --------------------------------------------------------------------------------
    def _check_read(self, clock: Clock, g: Ints, who: Array) -> None:
        seen = self.written[g] < clock.vc[self.component[g]]
        if every(seen):
            return
        own = (self.writer[g] == who) & (who >= 0) & (self.written[g] != _NEVER)
        bad = ~(seen | own)
        if not some(bad):
            return
        first = int(g[bad][0])
        if self.pending[first]:
            what = "reads bytes whose copy has not been waited for"
            raise OpFault("pending-copy", what, self.writer_op[first], "issued by")
        if self.writer[first] == _NOBODY:
            raise Fault("uninitialised", "reads bytes that were never written")
        raise OpFault(
            "unsynchronised-read",
            "reads bytes that another thread wrote with no barrier since",
            self.writer_op[first],
            "written by",
        )

    def _note_read(self, clock: Clock, g: Ints, who: Array, op: int) -> None:
        c = clock.component
        reader, read_at = self.reader[c], self.read_at[c]
        old = np.where(read_at[g] < clock.vc[c], _NOBODY, reader[g])
        reader[g] = who
        several = (reader[g] != who) | ((old != _NOBODY) & (old != who))
        if some(several):
            reader[g[several]] = MANY
        read_at[g] = self.time[c]
        self.reader_op[c][g] = op

    def _check_write(self, clock: Clock, g: Ints, who: Array) -> None:
        if self.pending_reads and some(held := self.held[g] > 0):
            what = "writes bytes that an outstanding operation may still read"
            raise OpFault("overwrite-in-use", what, self.holder[int(g[held][0])], "read by")
        self._check_no_reader(clock, g, who)
        ordered = (self.written[g] < clock.vc[self.component[g]]) | (self.writer[g] == _NOBODY)
        if every(ordered):
            return
        bad = ~ordered & ((self.writer[g] != who) | (who < 0) | self.pending[g])
        if some(bad):
            first = int(g[bad][0])
            outstanding = "whose copy is outstanding"
            what = outstanding if self.pending[first] else "that another thread wrote with no barrier since"
            raise OpFault("unordered-writes", f"writes bytes {what}", self.writer_op[first], "written by")

    def _check_no_reader(self, clock: Clock, g: Ints, who: Array) -> None:
        for c in range(len(self.reader)):
            late = self.read_at[c][g] >= clock.vc[c]
            if not some(late):
                continue
            bad = late & ((self.reader[c][g] != who) | (who < 0))
            if some(bad):
                first = int(g[bad][0])
                raise OpFault(
                    "overwrite-in-use",
                    "writes bytes that another thread read with no barrier since",
                    self.reader_op[c][first],
                    "read by",
                )


def _each(thread: Array) -> Array:
    """The thread of every granule, in a shape that broadcasts to theirs: the last axis is granules of one element."""
    return np.asarray(thread)[..., None]


class OpFault(Fault):
    """A Fault that involves an earlier operation, by number; ``link`` says how."""

    def __init__(self, kind: str, message: str, op: int, link: str) -> None:
        super().__init__(kind, message)
        self.op, self.link = int(op), link
