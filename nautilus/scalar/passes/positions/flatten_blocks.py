"""``flatten-blocks``: scores of blocks or windows have one axis for all positions in them, as those of a tensor have.

Attention over blocks that a list chooses has an axis for the list and one for the positions of a block, and sums over
both::

    S[i, s, w] = sum[d](Q[i, d] * K[at[i // W, s] * W + w, d])    ;    m[i] = max[s, w](S[i, s, w])    ;    ...

No loop of a tile has two axes, so that each of these definitions would be a kernel.  With ``j = s * W + w`` they have
one loop, whose steps are parts of a block::

    S[i, j] = sum[d](Q[i, d] * K[at[i // W, j // W] * W + j % W, d])    ;    m[i] = max[j](S[i, j])

The lines and columns of a window, ``K[y, r, x, c, d]``, have one loop in the same way where they are not side by side
in memory; those that are become one axis elsewhere (``collapse-axes``).

The pass begins at a product of matrices of which one operand alone has both axes.  All that reads its elements has or
reduces both, at their own positions, and several reductions do, as those of a softmax.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Expr, Load, Var, children, free_vars, loads, rewrite, substitute
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.positions import is_plain
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import find_defs, put_defs

SEVERAL = 2  # reductions over both axes; a single one may have a kernel with two loops


@dataclass(frozen=True, slots=True)
class FlattenBlocks:
    """The pass ``flatten-blocks``, which has no options."""

    name = "flatten-blocks"

    def apply(self, program: Program) -> Program:
        """The program with one axis for the positions of chosen blocks; the same object where there are none."""
        for name in find_defs(program):
            defs = find_defs(program)
            found = _blocks(defs[name], defs)
            if found is None:
                continue
            for d in defs.values():
                if d.name in found or any(ld.buffer in found for ld in d.reads()):
                    program = put_defs(program, d.name, (_joined(d, found),))
            program = Simplify().apply(program)
        return program


def _blocks(d: Def, defs: Mapping[str, Def]) -> dict[str, tuple[int, int]] | None:
    """Definition -> its dimensions for blocks and for the positions of a block, from the product ``d`` on."""
    if not multiplies_matrices(d) or not is_plain(d):
        return None
    pairs = [(s, w) for s in range(len(d.par)) for w in range(len(d.par)) if s != w and _share(d, d.par[s], d.par[w])]
    chosen = [(s, w) for s, w in pairs if _is_chosen(d, d.par[s])]
    for s, w in chosen or [(s, w) for s, w in pairs if s < w]:
        if not _is_chosen(d, d.par[w]) and (found := _chain(d, (s, w), defs)) is not None:
            return found
    return None


def _share(d: Def, s: Axis, w: Axis) -> bool:
    """Whether one operand of ``d`` has the axes ``s`` and ``w`` beside other tensors, and no other one has either."""
    names, places = {s.name, w.name}, {x for ld in d.reads() for e in ld.index for x in loads(e)}
    having = [ld for ld in d.reads() if names & free_vars(ld) and ld not in places]
    whole = all(size(a) is not None for a in (s, w)) and bool(having)
    return whole and all(names <= free_vars(ld) for ld in having) and len({ld.buffer for ld in having}) == 1


def _is_chosen(d: Def, s: Axis) -> bool:
    """Whether ``s`` is in the indices of loads in indices alone."""
    found = [(x, e) for ld in d.reads() for e in ld.index for x in loads(e) if s.name in free_vars(x)]
    return bool(found) and all(s.name not in _without(e, {x for x, _ in found}) for ld in d.reads() for e in ld.index)


def _without(e: Expr, left_out: set[Load]) -> set[str]:
    """The variables of ``e`` outside of ``left_out``."""
    if e in left_out:
        return set()
    return {e.name} if isinstance(e, Var) else {n for c in children(e) for n in _without(c, left_out)}


def _chain(d: Def, first: tuple[int, int], defs: Mapping[str, Def]) -> dict[str, tuple[int, int]] | None:
    places, todo, pairs = {d.name: first}, [d.name], dict[str, tuple[Axis, Axis]]()
    extents, reductions, apart = (
        [size(d.par[at]) for at in first],
        set[str](),
        not _side_by_side(d, d.par[first[0]], d.par[first[1]]),
    )
    while todo:
        name = todo.pop()
        for r, ld in ((x, ld) for x in defs.values() for ld in x.reads() if ld.buffer == name):
            pair = _pair(r, ld, places[name])
            if pair is None or [size(a) for a in pair] != extents or pairs.setdefault(r.name, pair) != pair:
                return None
            if all(a in r.par for a in pair):
                at = r.par.index(pair[0]), r.par.index(pair[1])
                if not is_plain(r) or places.setdefault(r.name, at) != at:
                    return None
                todo += [r.name] if r.name not in (name, *todo) else []
            elif not all(a in r.red for a in pair) or r.scatter is not None:
                return None
            else:
                reductions.add(r.name)
                apart = apart or not _side_by_side(r, *pair)
    return places if apart and len(reductions) >= SEVERAL else None


def _side_by_side(d: Def, s: Axis, w: Axis) -> bool:
    """Whether all tensors that ``d`` reads have ``w`` right after ``s``, so that a view has one axis for both."""
    for ld in (ld for ld in d.reads() if {s.name, w.name} & free_vars(ld)):
        at = [n for n, e in enumerate(ld.index) if e == Var(s.name)]
        if len(at) != 1 or ld.index[at[0] + 1 : at[0] + 2] != (Var(w.name),):
            return False
    return True


def _pair(r: Def, ld: Load, at: tuple[int, int]) -> tuple[Axis, Axis] | None:
    """The axes of ``r`` at which ``ld`` reads the dimensions ``at``; None for other reads."""
    found = [r.axis(e.name) if isinstance(e := ld.index[n], Var) else None for n in at]
    return None if found[0] is None or found[1] is None or found[0] is found[1] else (found[0], found[1])


def _joined(d: Def, places: Mapping[str, tuple[int, int]]) -> Def:
    """``d`` with one axis for blocks and positions, of its own or of its reduction."""
    at = places.get(d.name)
    pairs = (_pair(d, ld, places[ld.buffer]) for ld in d.reads() if ld.buffer in places)
    pair = next(pairs) if at is None else (d.par[at[0]], d.par[at[1]])
    assert pair is not None, "every read of the blocks is at two axes"
    s, w = pair
    j = Axis(unused(f"{s.name}_{w.name}", {a.name for a in d.axes}), _whole(s, w), s.span)

    def rule(n: Expr) -> Expr | None:
        if not isinstance(n, Load) or n.buffer not in places:
            return None
        first, second = places[n.buffer]
        index = [Var(j.name) if k == first else e for k, e in enumerate(n.index) if k != second]
        return replace(n, index=tuple(index))

    env: dict[str, Expr] = {
        s.name: calc("floordiv", Var(j.name), _whole(w)),
        w.name: calc("mod", Var(j.name), _whole(w)),
    }
    value = substitute(rewrite(d.value, rule), env)
    guard = None if d.guard is None else substitute(rewrite(d.guard, rule), env)
    par, red = (tuple(j if a is s else a for a in axes if a is not w) for axes in (d.par, d.red))
    buffer = d.buffer if at is None else replace(d.buffer, shape=tuple(a.extent for a in par))
    return replace(d, buffer=buffer, par=par, red=red, value=value, guard=guard)


def _whole(*axes: Axis) -> int:
    """The positions of ``axes`` together."""
    out = 1
    for a in axes:
        extent = size(a)
        assert extent is not None
        out *= extent
    return out
