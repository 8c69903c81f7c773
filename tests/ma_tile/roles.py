"""What the tests of the passes around warp roles share: schedules, and lines in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpgroupPlan
from nautilus.driver import Request, compile_file
from nautilus.ma_tile.ir.ops import MemModule, RolesOp
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import format_ops, parse
from nautilus.ma_tile.verify.module import verify
from tests.shipped import ROOT


def schedule(module: MemModule, **mapping: Any) -> Schedule:
    """The same mapping for every kernel."""
    plan = WarpgroupPlan(**mapping)
    return Schedule(
        (), tuple(KernelPlan(k.name, (), (AxisPlan("i", "tile", 1),), mapping=plan) for k in module.kernels)
    )


def text(module: MemModule) -> str:
    """The module's text, which must read back as the same module."""
    out = ma_format(module)
    assert parse(out) == module
    return out


def role(module: MemModule, name: str) -> str:
    """The body of one role, as text."""
    (roles,) = [op for op in module.kernels[0].body if isinstance(op, RolesOp)]
    (found,) = [r for r in roles.roles if r.name == name]
    return "\n".join(format_ops(found.body))


def in_order(body: str, *lines: str) -> None:
    """Each of ``lines`` stands in ``body``, as a part of a line of its own after the one before it."""
    at = iter(body.splitlines())
    for want in lines:
        assert any(want in line for line in at), f"{want!r} is not there, or not in this place:\n{body}"


def placed(module: MemModule) -> MemModule:
    """With shared memory allocated; the verifier accepts it."""
    from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared

    out = AllocateShared().apply(module)
    verify(out)
    return out


def scheduled(path: str, dims: dict[str, int], **mapping: Any) -> Request:
    """A spec for sm_90a under its default schedule with other options of the mapping."""
    request = Request(ROOT / "specs" / path, "sm_90a", dims=dims)
    base = compile_file(replace(request, until="scalar")).context.schedule
    assert base is not None
    kernels = tuple(replace(k, mapping=replace(k.mapping, **mapping)) for k in base.kernels)
    return replace(request, schedule=replace(base, kernels=kernels))
