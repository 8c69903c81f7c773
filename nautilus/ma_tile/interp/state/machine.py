"""State of a launch in the physical interpreter, and the context of one operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nautilus.core.errors import NautilusError
from nautilus.core.numerics import Array
from nautilus.ma_tile.interp.state.global_memory import GlobalMemory
from nautilus.ma_tile.interp.state.outstanding import Value
from nautilus.ma_tile.interp.state.shared_memory import SharedMemory
from nautilus.ma_tile.interp.state.sync import Actor
from nautilus.ma_tile.interp.state.values import Fault, Scope
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import ForOp, Frag, MemKernel, MemModule, MemOp, MmaOp, RolesOp, Smem, TileFetch, walk_ops


class InterpError(NautilusError):
    """A kernel violates a rule of the machine.

    ``kind`` names the rule, ``op`` is the operation's text (a deadlock: of every role), ``buffer``
    the buffer concerned (empty: none).
    """

    exit_code = 70

    def __init__(self, kernel: str, kind: str, op: str, buffer: str, message: str) -> None:
        self.kernel, self.kind, self.op, self.buffer, self.message = kernel, kind, op, buffer, message
        where = f" [buffer {buffer}]" if buffer else ""
        super().__init__(f"kernel {kernel}: {kind}: {message}{where}\n  in: {op}")


class Machine:
    """State that the blocks of one launch share; addresses are computed once for each op."""

    def __init__(
        self, module: MemModule, kernel: MemKernel, memory: GlobalMemory, params: Mapping[str, Any], seed: int = 0
    ) -> None:
        self.module, self.kernel, self.memory, self.params = module, kernel, memory, params
        self.seed = seed
        self.counter_resets = 0
        self.ops: list[MemOp] = list(walk_ops(kernel.body))
        self.number = {id(op): n for n, op in enumerate(self.ops)}
        self.buffers: dict[str, Smem] = {s.name: s for s in kernel.smem}
        self.frags: dict[str, Frag] = {}
        for op in self.ops:
            match op:
                case ForOp():
                    self.frags |= {f.name: f for f in (*op.results, *(arg for arg, _ in op.carried))}
                case _ if hasattr(op, "result"):
                    self.frags[op.result.name] = op.result
                case _:
                    pass
        self.component: dict[int, int] = {}
        self.components = kernel.consumers
        for op in self.ops:
            for role in op.roles if isinstance(op, RolesOp) else ():
                self.component[id(role)] = self.components
                self.components += role.consumers
        self.threads = 32 * kernel.warps
        self.span = -(-max(kernel.smem_bytes, 16) // 1024) * 1024
        self.is_async = any(isinstance(op, MmaOp) and op.is_async for op in self.ops)
        self._cache: dict[tuple[int, str], Any] = {}

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""

        def no_refs(name: str) -> Array:
            raise KeyError(name)

        return int(Scope({}, self.params, {}, no_refs).eval(self.kernel.blocks))

    def check_counter(self) -> None:
        """Check that the tile counter is 0 after a whole launch. Raises InterpError."""
        fetch = next((op for op in self.ops if isinstance(op, TileFetch)), None)
        if fetch is not None and self.counter_resets != 1:
            message = f"the tile counter is reset {self.counter_resets} times in a launch"
            raise InterpError(self.kernel.name, "tile-counter", f"tile.fetch {fetch.var}", "", message)

    def smem(self, name: str) -> Smem:
        """The shared buffer called ``name``. Raises Fault."""
        if name not in self.buffers:
            raise Fault("undefined-buffer", f"no shared buffer is called {name}")
        return self.buffers[name]

    def layout(self, name: str) -> FragLayout:
        """The kernel's layout ``name``. Raises Fault."""
        if name not in self.kernel.layouts:
            raise Fault("layout", f"no layout is called #{name}")
        return self.kernel.layouts[name]

    def cached(self, op: object, what: str, make: Callable[[], Any]) -> Any:
        """``make()``, called once for each op (ops live as long as the machine)."""
        key = (id(op), what)
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def shared_memory(self) -> SharedMemory:
        """Fresh shared memory for the blocks of one cluster."""
        granule = min((s.dtype.bytes for s in self.kernel.smem), default=4)
        ranks = self.kernel.together
        roles, bars = ranks * self.components, ranks * sum(m.stages for m in self.kernel.mbars)
        return SharedMemory(ranks * self.span, granule, roles + bars, roles)


class Context:
    """The context of an operation: its consumer, the fragments and the integer variables in scope.

    ``first``: number of the block's first warp in the cluster.
    """

    __slots__ = ("actor", "frags", "threads", "variables")

    def __init__(self, actor: Actor, frags: dict[str, Value], variables: dict[str, int], first: int = 0) -> None:
        self.actor, self.frags, self.variables = actor, frags, variables
        warp = first + actor.first_warp + np.arange(actor.warps, dtype=np.int32)
        self.threads: Array = (32 * warp[:, None] + np.arange(32, dtype=np.int32))[:, :, None]

    def inner(self, **variables: int) -> Context:
        """A nested scope: definitions in it do not leave it."""
        out = object.__new__(Context)
        out.actor, out.threads = self.actor, self.threads
        out.frags, out.variables = dict(self.frags), {**self.variables, **variables}
        return out
