"""Rules of the initialisation of mbarriers, and of the stages at which a pipeline uses them.

* ``mbar.init`` stands once at the top level of a kernel with mbarriers, and no use of an mbarrier stands before it.
* A barrier of all threads of the block stands between it and the first use.  Where blocks of a cluster arrive at each
  other's mbarriers, it is a cluster barrier, and another one follows the last use, because a block whose mbarriers are
  in use may not end.  Its arrival is not relaxed: a relaxed one may overtake the last arrival at an mbarrier.

* Where the state of a pipeline gives a stage, a wait and ``mbar.expect`` use that stage itself, and a wait has the
  phase of the same state.  An arrival may release the stage of an earlier use, behind an ``advance`` or under a
  condition.
* A TMA load arrives where the ``mbar.expect`` in front of it does.

A kernel without ``mbar.init`` precedes the pass ``initialise-mbarriers``; its mbarriers are ready at the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Expr, Var, free_vars
from nautilus.core.ops import regions
from nautilus.ma_tile.analysis.mbarriers import makes_ready, shared_in_cluster, uses_mbarriers
from nautilus.ma_tile.ir.ops import (
    AdvanceOp,
    ClusterArrive,
    ClusterWait,
    IfOp,
    MbarArrive,
    MbarExpect,
    MbarInit,
    MbarWait,
    MemKernel,
    MemOp,
    PipelineState,
    RolesOp,
    TmaLoad,
    walk_ops,
)
from nautilus.ma_tile.ir.traverse import Ops
from nautilus.ma_tile.verify import reject_op


def check_mbarriers(k: MemKernel) -> None:
    """Raise VerifyError where ``k`` breaks a rule of the module docstring."""
    _check_stages(k.body, {p.stage: p for p in k.pipelines}, None, False)
    _check_initialisation(k)


def _check_stages(body: Ops, states: Mapping[str, PipelineState], expect: MbarExpect | None, earlier: bool) -> None:
    """The rules of stages; ``expect``: the last one before ``body``; ``earlier``: some uses may precede it."""
    moved = set[str]()
    for op in body:
        match op:
            case MbarExpect(mbar=name, stage=stage):
                _state(op, stage, states)
                expect = op
            case MbarWait(stage=stage, parity=parity):
                p = _state(op, stage, states)
                if p is not None and parity not in (Var(p.phase), calc("sub", 1, Var(p.phase))):
                    reject_op(op, "a wait has stage and phase of one pipeline state", f"it has another than {p.phase}")
            case MbarArrive(stage=stage) if not earlier:
                names = free_vars(stage) & states.keys()
                if not any(states[n].name in moved for n in names):
                    _state(op, stage, states)
            case TmaLoad(mbar=(name, stage)) if expect is not None and (name, stage) != (expect.mbar, expect.stage):
                detail = f"that is {expect.mbar}[...]" if name != expect.mbar else "the stage is another one"
                reject_op(op, "a TMA load arrives where the mbar.expect in front of it does", detail)
            case AdvanceOp(pipeline=name):
                moved.add(name)
            case RolesOp(roles=roles):
                for role in roles:
                    _check_stages(role.body, states, None, False)
            case _:
                for inner in regions(op):
                    _check_stages(inner, states, expect, earlier or isinstance(op, IfOp))
                moved |= {x.pipeline for x in walk_ops((op,)) if isinstance(x, AdvanceOp)}


def _state(op: MemOp, stage: Expr, states: Mapping[str, PipelineState]) -> PipelineState | None:
    """The pipeline state that gives ``stage``, if one does. Raises VerifyError where that is not its own stage."""
    for name in free_vars(stage) & states.keys():
        if stage != Var(name):
            rule = "waits, expected bytes and releases have the stage of a pipeline state"
            reject_op(op, rule, f"the stage is computed from {name}")
        return states[name]
    return None


def _check_initialisation(k: MemKernel) -> None:
    inits = [op for op in walk_ops(k.body) if isinstance(op, MbarInit)]
    if not inits:
        return
    first = inits[0]
    if len(inits) > 1 or first not in k.body or not k.mbars:
        reject_op(
            first, "mbar.init stands once at the top level of a kernel with mbarriers", f"{len(inits)} in {k.name}"
        )
    initialised, ready, cluster = False, False, shared_in_cluster(k)
    for op in k.body:
        if isinstance(op, MbarInit):
            initialised = True
        elif initialised and makes_ready(op, cluster):
            ready = True
        elif uses_mbarriers(op) and not ready:
            who = "cluster" if cluster else "block"
            reject_op(
                op, "mbarriers are used after mbar.init and a barrier", f"there is none of all threads of the {who}"
            )
    if cluster:
        last = max(n for n, op in enumerate(k.body) if uses_mbarriers(op))
        end = [op for op in k.body[last + 1 :] if isinstance(op, ClusterArrive | ClusterWait)]
        ordered = any(isinstance(op, ClusterArrive) and not op.relaxed for op in end)
        if not ordered or not any(isinstance(op, ClusterWait) for op in end):
            detail = "no cluster barrier that orders follows the last use"
            reject_op(k.body[last], "a block does not end while other blocks use its mbarriers", detail)
