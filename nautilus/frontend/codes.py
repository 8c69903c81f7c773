"""The diagnostic codes of the frontend and their meanings, which are stable across releases.

N01 reading and syntax, N02 names, N03 indices and ranges, N04 types, N05 sizes.
``tests/frontend/errors`` holds one file per code with its exact text.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_BYTES = 1 << 18  # a spec file; the longest known ones are a few KiB
MAX_DEPTH = 200  # nesting of an expression, as written and after functions are expanded
MAX_NODES = 50_000  # nodes of one definition after functions are expanded, written out as a tree
MAX_ERRORS = 100  # number of errors shown for one spec
MAX_TENSORS = 1000  # inputs and outputs of one spec; the parameters of a kernel have 32,764 bytes
MAX_ELEMENTS = 1 << 40  # elements of one input or output
MAX_DEFINED = 1 << 56  # elements of one definition, which a kernel seldom stores; their bytes fit 64 bits

CODES: Mapping[str, str] = {
    "N0101": "file cannot be read",
    "N0102": "file is not UTF-8 text",
    "N0103": "character that is no part of the language",
    "N0104": "syntax error",
    "N0105": "nested or expanded too deeply",
    "N0106": "file too large",
    "N0107": "included file cannot be read",
    "N0108": "files include each other in a cycle",
    "N0109": "malformed number",
    "N0110": "bracket never closed, or never opened",
    "N0111": "wrong form inside brackets",
    "N0112": "construct that is not supported yet",
    "N0201": "unknown tensor",
    "N0202": "unknown name in an expression",
    "N0203": "unknown function",
    "N0204": "name declared twice",
    "N0205": "output never defined",
    "N0206": "tensor defined twice",
    "N0207": "cyclic definitions",
    "N0208": "unknown name in a size",
    "N0209": "input never used (warning)",
    "N0210": "scalar or definition never used (warning)",
    "N0211": "name of the wrong kind",
    "N0212": "wrong number of arguments",
    "N0213": "function with index variables or a condition that it does not take, or without those that it needs",
    "N0214": "no output declared",
    "N0215": "an input cannot be defined",
    "N0216": "reserved name",
    "N0217": "a size given for an unknown dim",
    "N0301": "wrong rank",
    "N0302": "index never bound",
    "N0303": "range disagreement",
    "N0304": "range cannot be inferred",
    "N0305": "read out of range",
    "N0306": "index variable bound twice in one list",
    "N0307": "read of an earlier value of a recurrence in a wrong form or without a condition",
    "N0308": "index that hides another one (warning)",
    "N0309": "index with the name of a size (warning)",
    "N0401": "type mismatch",
    "N0402": "condition is not bool",
    "N0403": "index is not an integer",
    "N0404": "result does not fit the declared type",
    "N0405": "unknown element type",
    "N0406": "division by zero",
    "N0407": "shift by a negative number",
    "N0408": "division by zero (warning)",
    "N0501": "size missing",
    "N0502": "size not positive",
    "N0503": "size or tensor too large",
    "N0504": "not a compile-time number",
    "N0505": "size is not an integer",
    "N0506": "wrong use of a runtime size",
    "N0507": "a fact that does not hold",
    "N0508": "a fact about something that has no value before the launch",
    "N0509": "an axis that the strides of a tensor cannot name",
    "N0510": "shape that a tensor of a packed type cannot have",
}
