"""What may stand at a place of a spec, for completion.

The statement at the place is seldom complete, so its tokens decide, not its tree.  The editor matches what is begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from nautilus.core.records import dataclass
from nautilus.editor.document import Document
from nautilus.editor.names import TYPES
from nautilus.editor.words import STATEMENTS, functions, meanings
from nautilus.frontend.semantics.symbols import BUILTINS, Symbols
from nautilus.frontend.syntax.load import SUFFIX, prelude
from nautilus.frontend.syntax.parse import tokens

_IN_EXPRESSIONS = ("if", "else", "and", "or", "not", "inf", "true", "false")
_DECLARATIONS = ("INPUT", "OUTPUT")
_STARTS = frozenset({"DIM", "CONST", "INPUT", "OUTPUT", "SCALAR", "DEF", "INCLUDE"})


@dataclass(frozen=True, slots=True)
class Item:
    """A word that may stand at a place. ``kind``: keyword, type, function, tensor, number, index or file."""

    label: str
    kind: str
    detail: str = ""
    documentation: str = ""


def completions(document: Document, line: int, column: int) -> list[Item]:
    """The words that may stand at the place, or go on what is begun there; none in a comment."""
    own, rest = _before(document, line, column)
    if "#" in rest:
        return []
    if (own and own[0].type == "INCLUDE") or '"' in rest:
        return [Item(name, "file") for name in _files(document)]
    sym = document.analysis.symbols or Symbols({})
    return list(_items(own, sym))


def _before(document: Document, line: int, column: int) -> tuple[list[Any], str]:
    """The tokens of the statement before the place, without a word that is begun there, and the text after them."""
    own: list[Any] = []
    depth = 0
    end = 1  # of the last token in the line
    for token in tokens(document.source):
        if (token.line, token.column) >= (line, column):
            break
        touches = token.line == line and token.end_column >= column
        if touches and (str(token)[0].isalnum() or token == "_" or token.type == "NAME"):
            end = column
            break
        if token.type == "NEWLINE":
            own = own if depth else []
            continue
        if token.type in _STARTS:
            own, depth = [], 0
        depth = max(0, depth + (token.type in ("LPAR", "LSQB")) - (token.type in ("RPAR", "RSQB")))
        end = token.end_column if token.line == line else end
        own.append(token)
    return own, document.source.line(line)[end - 1 : column - 1]


def _files(document: Document) -> list[str]:
    """The specs in the folder of the document and below it."""
    found = (p.relative_to(document.folder).as_posix() for p in document.folder.glob(f"*{SUFFIX}"))
    deeper = (p.relative_to(document.folder).as_posix() for p in document.folder.glob(f"*/*{SUFFIX}"))
    return sorted({*found, *deeper} - {Path(document.name).name})


def _items(own: Sequence[Any], sym: Symbols) -> Iterator[Item]:
    if not own or own[-1] in ("{", "}"):
        yield from (Item(word, "keyword", "", meanings().get(word, "")) for word in STATEMENTS)
        yield from (_tensor(name, sym) for name, d in sym.decls.items() if d.is_output and name not in sym.defines)
        return
    kinds = [t.type for t in own]
    depth = sum(k in ("LSQB", "LPAR") for k in kinds) - sum(k in ("RSQB", "RPAR") for k in kinds)
    head = kinds[0] in (*_DECLARATIONS, "SCALAR") or "ASSIGN" not in kinds
    if kinds[-1] == "COLON" and depth == 0 and head:
        yield from (Item(name, "type", "", meanings().get(name, "")) for name in sorted(TYPES))
    elif kinds[0] in _DECLARATIONS:
        if depth:
            yield from _sizes(sym)
        elif kinds[-1] == "RSQB":
            yield Item("strided", "keyword", "", meanings()["strided"])
    elif kinds[0] in ("DIM", "CONST", "SCALAR"):
        if "ASSIGN" in kinds:
            yield from _sizes(sym)
            if kinds[0] == "DIM":
                yield from (Item(word, "keyword", "", meanings()[word]) for word in ("runtime", "device"))
    elif "ASSIGN" in kinds or kinds[0] == "ASSUME" or own[0] == "assume":
        yield from _expression(own, sym)
    elif kinds[-1] == "COLON" and depth:
        yield from _sizes(sym)


def _sizes(sym: Symbols) -> Iterator[Item]:
    for name in (*sym.dims, *sym.consts):
        value = sym.values.get(name)
        yield Item(name, "number", "runtime" if value is None else str(value))


def _expression(own: Sequence[Any], sym: Symbols) -> Iterator[Item]:
    known = {*sym.names(), *BUILTINS, *sym.functions}
    yield from (Item(name, "index") for name in _locals(own) if name not in known)
    yield from (_tensor(name, sym) for name in {**sym.decls, **sym.defines})
    yield from (Item(name, "number", s.dtype.id) for name, s in sym.scalars.items())
    yield from _sizes(sym)
    taken = {f.name.id: f for f in prelude()} | sym.functions
    for name in sorted({*functions(), *taken}):
        arguments = ", ".join(n.id for n in taken[name].params) if name in taken else ""
        forms = functions().get(name, ())
        yield Item(name, "function", f"({arguments})" if arguments else "", "\n\n".join(forms))
    yield from (Item(word, "keyword") for word in _IN_EXPRESSIONS)


def _locals(own: Sequence[Any]) -> list[str]:
    """The names in the statement that may be index variables or arguments."""
    return list(dict.fromkeys(
        str(t) for t, after in pairwise([*own, None])
        if t.type == "NAME" and (after is None or after.type not in ("LSQB", "LPAR"))
    ))  # fmt: skip


def _tensor(name: str, sym: Symbols) -> Item:
    shaped = sym.tensors.get(name)
    if shaped is None or shaped.shape is None:
        return Item(name, "tensor")
    sizes = ", ".join(s.dim or str(s.extent) for s in shaped.shape)
    return Item(name, "tensor", f"{shaped.packed or shaped.dtype}[{sizes}]")
