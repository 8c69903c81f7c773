"""``store-results``: a product of which matrices alternate in memory is stored as one matrix after another.

``Z[i, j, c] = sum[k](A[i, k, c] * B[j, k, c])`` has a product of matrices for each ``c``.  The elements of one of them
are apart in memory, so that a tile writes each into a sector of its own.  Here the product has a temp whose last axes
are those of a matrix, and one more kernel, which goes through shared memory, has the order of the result::

    Z_rows[c, i, j] sum= A[i, k, c] * B[j, k, c]      ;    Z[i, j, c] = Z_rows[c, i, j]

An elementwise definition of the sums, such as an activation, stays in the kernel of the product if it reads nothing
else at an axis that numbers matrices.  The temp then has the type of the result and is rounded where the result would
be, so every bit stays.  Otherwise the temp has the sums, and the second kernel computes the rest::

    S[c, i, j] sum= A[i, k, c] * B[j, k, c]           ;    Z[i, j, c] = G[i, j, c] * S[c, i, j]

An output whose last dimension has the number of the matrix as its last digit, ``Z[i, j * C + c]``, has two dimensions
there (:attr:`~nautilus.core.buffers.Buffer.view_of`).

The sums are read by such results only, or by a reduction over the matrices, as that of mixed heads of attention
(``sum[h](W[g, h] * S[i, j, h])``) or of weighted experts: they are in memory then, one matrix after another.  The pass
applies where stores of single elements are predicted to take longer than the temp.  Sizes that are known only at launch
count with their nominal values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import in_compute_type
from nautilus.core.expr.nodes import Load, Var, free_vars
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.alternating import Matrices, Order, alternating, is_worth, matrices
from nautilus.scalar.analysis.contractions.crossing import numbering
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs, turned
from nautilus.scalar.rewriting.digits import last_digit, viewed


@dataclass(frozen=True, slots=True)
class StoreResults:
    """Store products of which matrices alternate in memory in an order of their own."""

    name = "store-results"

    def apply(self, program: Program) -> Program:
        """The program with such products in another order, and with one more definition for some of them."""
        for name in find_defs(Dead().apply(program)):
            by_digits = _by_digits(program, name)
            for given in (program,) if by_digits is program else (by_digits, program):
                made = _with_results(given, name)
                if made is not given:
                    program = made
                    break
        return program


def _with_results(program: Program, name: str) -> Program:
    """``program`` with the product ``name`` in another order, or with one more definition; itself where it stays."""
    defs = find_defs(Dead().apply(program))
    d = defs[name]
    found, readers = matrices(d, d), _readers(defs, name)
    if found is None:
        return program
    if d.buffer.space is Space.OUTPUT and not readers and is_worth(found, d):
        return _copied(program, found, d)
    if d.buffer.space is Space.TEMP and readers and all(_is_result(found, r) for r in readers):
        return _stored(program, found, readers)
    order = alternating(found, d) if d.buffer.space is Space.TEMP and is_worth(found, d) else None
    return turned(program, d, order.of_product) if order and any(_mixes(d, r) for r in readers) else program


def _mixes(d: Def, r: Def) -> bool:
    """Whether the reduction ``r`` combines elements of different matrices of the product ``d``, each axis by itself."""
    groups, red = numbering(d), {a.name for a in r.red}
    found = [ld.index for ld in r.reads() if ld.buffer == d.name]
    if r.op is None or not all(isinstance(e, Var) for index in found for e in index):
        return False
    return any(a.name in groups and free_vars(e) <= red for index in found for a, e in zip(d.par, index, strict=True))


def _readers(defs: Mapping[str, Def], name: str) -> list[Def]:
    return [r for r in defs.values() if any(ld.buffer == name for ld in r.reads())]


def _by_digits(program: Program, name: str) -> Program:
    """``program`` with two dimensions for the last one of a result that reads product ``name``, if it has digits."""
    defs = find_defs(Dead().apply(program))
    for r in _readers(defs, name):
        size = None if r.at is None or r.op is not None else last_digit(r, r.at[-1])
        if size is not None:
            return viewed(program, size)
    return program


def _is_result(found: Matrices, r: Def) -> bool:
    """Whether ``r`` is an elementwise output of the sums ``found`` whose stores should be turned."""
    plain = r.op is None and r.guard is None and r.at is None and r.buffer.space is Space.OUTPUT
    return plain and is_worth(found, r)


def _stored(program: Program, found: Matrices, readers: list[Def]) -> Program:
    """``program`` with the sums in another order, and the rest of ``readers`` in their kernel where it may be."""
    first, d = readers[0], found.of
    order = _order(found, first)
    apart = {first.par[n].name for n in order.groups}
    if len(readers) == 1 and not any(apart & free_vars(ld) for ld in first.reads() if ld.buffer != d.name):
        program = _copied(program, found, first)
    return turned(program, d, order.of_product)


def _order(found: Matrices, r: Def) -> Order:
    order = alternating(found, r)
    assert order is not None
    return order


def _copied(program: Program, found: Matrices, r: Def) -> Program:
    """``program`` in which a temp has the elements of ``r``, matrix after matrix, and ``r`` is a copy of it."""
    name = fresh_name(program, f"{r.name}_rows")
    axes = tuple(r.par[n] for n in _order(found, r).of_reader)
    buffer = Buffer(name, r.buffer.dtype, tuple(a.extent for a in axes), Space.TEMP, r.span)
    temp = replace(r, name=name, buffer=buffer, par=axes)
    value = in_compute_type(Load(name, temp.index, buffer.dtype, r.span))
    copy = Def(r.name, r.buffer, r.par, (), None, value, None, r.span)
    return put_defs(program, r.name, (temp, copy))
