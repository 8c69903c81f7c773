"""Whether the module after a pass refines the module before it: both run at the points of ``points``.

A module after the pass must write what the module before it writes, and every element must be the same number: equal
residues prove it at the sizes of the modules (but for a chance of about 2^-20 for each point), and the reals agree
everywhere.  Residues that differ while the reals agree decide nothing: the identity needs a rule that the field does
not have (``sqrt(x) ** 2 = x``) or a rounded constant.

At the infinite point a pass may move inf and NaN to other places if a later one moves them back: tiles of a product
hold what a mask excludes until a kernel computes these rows again.  The validator keeps the results from before the
first of these passes until a module agrees with them.  An infinite factor that leaves a sum may make an infinity of
NaN, as the language says, and a matrix state in chunks the reverse.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from nautilus.check.validate import scalar_run, tile_run
from nautilus.check.validate.memory import Malformed, Memory, Unsupported
from nautilus.check.validate.numbers import Constants
from nautilus.check.validate.points import INFINITE, points
from nautilus.check.validate.scalar_run import Given
from nautilus.check.validate.verdict import Verdict
from nautilus.core.buffers import Space, extents
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.scalar.ir import Program
from nautilus.vr_tile.ir import TileModule

_NEAR = 2.0**-44  # relative distance of inputs that tell where terms cancel
_CHANCE = 256.0  # the difference of two results of terms that cancel, in units of another such difference
_TERMS = 1e-3  # least magnitude of the terms of a sum that cancels, for a point without residues
_TIES = 2.0**-30  # relative distance of inputs that tell where integers are at ties, after sums that lost digits
_NEARBY = 40  # points close to another one at which ties are looked for
_CANCELLING = ("large", "special", INFINITE)  # points at which roundings may be all that is left of a sum
_BESIDE = 2.0**-4  # relative distance of inputs that tell which overflows the order of factors decides
_OVERFLOWS = 8  # points close to another one at which such overflows are looked for
_TOLERANCE = 1e-9  # share of the largest finite element of a buffer

Results = dict[str, Memory]


@dataclass
class Validator:
    """Validates the passes of one compilation; the results of a module are kept for the next pass.

    ``inputs``: one set for each kind of point, of which the validator takes shapes, integers and bools.  ``params``:
    all parameters.  ``bounded``: the inputs whose elements the spec promises to be in a range.
    """

    inputs: Sequence[Mapping[str, Array]]
    params: Mapping[str, int | float | bool]
    seed: int = 0
    bounded: Collection[str] = ()
    constants: Constants = field(default_factory=Constants)
    _kept: dict[int, tuple[Any, dict[str, Results | Exception]]] = field(default_factory=dict)
    displaced: str = ""  # the first difference at the infinite point that no later module restores
    _unseen: bool = False  # a pass could not be run at the infinite point, so a later one may move back what it moved
    _placed: Results = field(default_factory=dict)  # with ``displaced``: the results of the module before that pass

    def validate(
        self, before: Program | TileModule, after: Program | TileModule, approximated: Collection[str] = (),
        chunks: bool = False,
    ) -> Verdict:  # fmt: skip
        """The verdict on the pass that made ``after`` from ``before``.

        The outputs ``approximated`` may change by an error that this engine does not know: they are undecided.
        ``chunks``: the pass computes matrix states in chunks.
        """
        if _interface(before) != _interface(after):
            return Verdict("refuted", detail="the inputs or the outputs differ")
        left, right = self.results(before), self.results(after)
        self._kept = {id(after): self._kept[id(after)]}
        self._unseen |= any(isinstance(side.get(INFINITE), Exception) for side in (left, right))
        compared, undecided, missing = 0, "", ""
        for kind in left:
            old, new = left[kind], right[kind]
            if kind == INFINITE and (large := [x for x in (old, new) if isinstance(x, Unsupported)]):
                missing = f"without inf and NaN: {large[0]}"
                continue
            if isinstance(old, Exception):
                return Verdict("not decided", detail=f"the module before: {old}")
            if isinstance(new, Malformed):
                return Verdict("refuted", detail=f"{new}; point {kind}")
            if isinstance(new, Exception):
                return Verdict("not decided", detail=f"the module after: {new}")
            moved = ""
            for name in old:
                if name in approximated:
                    undecided = undecided or f"{name} may change by an error"
                    continue
                found = compare(old[name], new[name])
                if found.status == "refuted" and kind in _CANCELLING:
                    near = self._near(before, kind, self.seed, _NEAR)
                    if not isinstance(near, Exception):
                        left_out = self._overflows(before, kind, old[name], new[name])
                        found = compare(old[name], new[name], near[name], left_out)
                if found.status == "refuted" and self._ties(before, kind, old[name], new[name]):
                    undecided = undecided or f"roundings of numbers at ties decide about {name}"
                    continue
                if found.status == "refuted" and kind == INFINITE and not _apart(old[name], new[name]):
                    if (_moved(old[name], new[name]) & ~_factored(old[name], new[name], chunks)).any():
                        moved = moved or f"{name}{found.detail}; point {kind}"
                    continue
                if found.status == "refuted":
                    return Verdict("refuted", detail=f"{name}{found.detail}; point {kind}")
                compared += found.points
                undecided = undecided or (f"the residues of {name} do not decide" if found.status == "tested" else "")
            if moved and self._restores(new):
                self.displaced, self._placed = "", {}
            elif moved and not self._unseen:
                self.displaced, self._placed = self.displaced or moved, self._placed or old
                missing = missing or "it moves inf and NaN"
            elif moved:
                missing = missing or "it may move inf and NaN back"
        if not compared:
            return Verdict("not decided", detail=undecided or missing or "no output is finite at any point")
        return Verdict("tested", compared, undecided) if undecided else Verdict("proved", compared, missing)

    def misplaced(self, last: Program | TileModule) -> bool:
        """Whether inf and NaN that passes moved are elsewhere in ``last``, the module after all passes."""
        found = self.results(last).get(INFINITE) if self.displaced else None
        if found is None or isinstance(found, Exception):
            return False
        return not self._restores(found)

    def _restores(self, new: Results) -> bool:
        """Whether inf and NaN are where they were before passes moved them."""
        pairs = [(old, new[name]) for name, old in self._placed.items()]
        return bool(pairs) and not any((_moved(a, b) & ~_factored(a, b)).any() for a, b in pairs)

    def results(self, module: Program | TileModule) -> dict[str, Results | Exception]:
        """The outputs of ``module`` at each point, or the error of the run."""
        if id(module) not in self._kept:
            found: dict[str, Results | Exception] = {}
            for kind, given in points(module.buffers, self.inputs, self.params, self.seed, self.bounded):
                if kind == "positive" and _mostly_finite(found["generic"]):
                    continue
                found[kind] = self._run(module, given)
            self._kept[id(module)] = (module, found)
        return self._kept[id(module)][1]

    def _ties(self, module: Program | TileModule, kind: str, old: Memory, new: Memory) -> bool:
        """Whether integers or bools differ only where ``old``, of ``module``, changes close to the point ``kind``."""
        if old.dtype.is_float or not np.array_equal(old.written, new.written):
            return False
        rest = old.real != new.real
        for seed in range(_NEARBY):
            near = self._near(module, kind, seed, _TIES)
            if isinstance(near, Exception) or not rest.any():
                break
            rest &= near[old.name].real == old.real
        return not rest.any()

    def _overflows(self, module: Program | TileModule, kind: str, old: Memory, new: Memory) -> Array:
        """The elements of ``old``, of ``module``, that overflow, differ from ``new``, and are others close to ``kind``.

        At the end of float64, ``a * b * c`` is finite in one order and infinite in another.
        """
        a = old.real
        rest = ~np.isfinite(a) & ~_same(a, new.real)
        moved = np.zeros_like(rest)
        for seed in range(_OVERFLOWS if rest.any() else 0):
            near = self._near(module, kind, seed, _BESIDE)
            if not isinstance(near, Exception):
                moved |= ~_same(a, near[old.name].real)
        return np.asarray(rest & moved)

    def _near(self, module: Program | TileModule, kind: str, seed: int, distance: float) -> Results | Exception:
        """The outputs of ``module`` close to the point ``kind``: others where large numbers cancel, and at ties."""
        found = points(module.buffers, self.inputs, self.params, self.seed, self.bounded)
        (given,) = (g for k, g in found if k == kind)
        rng = np.random.default_rng(seed)
        floats = {n: x for n, x in given.arrays.items() if x.dtype.kind == "f"}
        moved = {n: x * (1.0 + distance * rng.normal(size=x.shape)) for n, x in floats.items()}
        return self._run(module, replace(given, arrays={**given.arrays, **moved}), Constants((distance, seed)))

    def _run(
        self, module: Program | TileModule, given: Given, constants: Constants | None = None
    ) -> Results | Exception:
        runner = scalar_run.run if isinstance(module, Program) else tile_run.run
        try:
            with np.errstate(all="ignore"):
                buffers = runner(module, given, constants or self.constants)  # type: ignore[arg-type]
        except (Malformed, Unsupported) as error:
            return error
        except (TypeError, KeyError, IndexError, ValueError) as error:
            return Malformed(f"the module cannot run: {type(error).__name__}: {error}")
        outputs = (b for b in module.buffers if b.space is Space.OUTPUT)
        return {b.name: buffers[b.name].reshaped(extents(b.array_shape, given.params)) for b in outputs}


def _interface(module: Program | TileModule) -> object:
    arguments = [b for b in module.buffers if b.space in (Space.INPUT, Space.OUTPUT)]
    plain = [replace(b, shape=b.array_shape, view_of=None, strides=None, initial=None) for b in arguments]
    return plain, module.params


def _mostly_finite(found: Results | Exception) -> bool:
    if isinstance(found, Exception):
        return True
    return all(2 * np.count_nonzero(np.isfinite(m.real)) >= m.real.size for m in found.values())


def _same(a: Array, b: Array) -> Array:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _moved(old: Memory, new: Memory) -> Array:
    """The elements that are inf or NaN on one side and something else on the other."""
    return np.asarray(~(np.isfinite(old.real) & np.isfinite(new.real)) & ~_same(old.real, new.real))


def _factored(old: Memory, new: Memory, chunks: bool = False) -> Array:
    """The elements at which an infinite factor turns NaN into an infinity, or with ``chunks`` anything into NaN.

    Products of the steps of a chunk overflow float64 where a few elements are the lowest number, which is in no range.
    """
    a, b = old.real, new.real
    return np.asarray((np.isnan(a) & np.isinf(b)) | (chunks & np.isnan(b)))


def _apart(old: Memory, new: Memory) -> bool:
    """Whether ``new`` differs from ``old`` in more than the places of inf and NaN."""
    return not old.dtype.is_float or compare(old, new, left_out=_moved(old, new)).status == "refuted"


def compare(old: Memory, new: Memory, near: Memory | None = None, left_out: Array | None = None) -> Verdict:
    """The verdict on ``new`` against ``old``; the detail of a refutation starts with the index.

    ``near``: the result ``old`` on inputs that differ by roundings, which tells where large terms cancel.
    ``left_out``: elements that are not compared.
    """
    if not np.array_equal(old.written, new.written):
        return _difference(old, new, old.written != new.written, "is written by one side only")
    a, b = old.real, new.real
    if not old.dtype.is_float:
        wrong = a != b
        if wrong.any():
            return _difference(old, new, wrong)
        return Verdict("proved", int(a.size))
    fine = np.isfinite(a) & np.isfinite(b)
    size = float(np.abs(a[fine]).max(initial=0.0))
    misplaced = _moved(old, new) if left_out is None else _moved(old, new) & ~left_out
    with np.errstate(all="ignore"):
        residues = old.u is not None and new.u is not None
        apart = fine & (np.abs(a - b) > _TOLERANCE * max(size, 1e-300 if residues else _TERMS))
        if old.u is not None and new.u is not None:  # sums that cancel to 0 are equal by their residues alone
            apart &= (old.u != new.u) | (np.abs(a - b) > _TOLERANCE)
        if near is not None:
            by_chance = np.abs(np.where(fine & np.isfinite(near.real), a - near.real, 0.0)).max(initial=0.0)
            apart &= np.abs(a - b) > _CHANCE * by_chance
        wrong = misplaced | apart
    if wrong.any():
        return _difference(old, new, wrong)
    if old.u is None or new.u is None or np.array_equal(np.where(fine, old.u, 0), np.where(fine, new.u, 0)):
        return Verdict("proved", int(np.count_nonzero(fine)))
    return Verdict("tested", int(np.count_nonzero(fine)))


def _difference(old: Memory, new: Memory, wrong: Array, words: str = "") -> Verdict:
    at = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
    text = words or f"is {new.real[at].item()!r}, expected {old.real[at].item()!r}"
    return Verdict("refuted", detail=f"[{', '.join(map(str, at))}] {text}")
