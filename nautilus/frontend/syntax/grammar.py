"""Finds the grammar and the prelude, and builds the LALR parser or loads its tables from the cache.

The files are in ``grammar/`` beside the package in a checkout, and in ``nautilus/grammar/`` in an
installed wheel.  Lark is imported only where the cache has no tables and for statements that do not parse.  Tables
are cached under ``NAUTILUS_CACHE_DIR``, else ``XDG_CACHE_HOME/nautilusc``, else
``~/.cache/nautilusc``.  A cache that cannot be read or written is no error.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nautilus.core.errors import InternalError
from nautilus.frontend.syntax.lalr.machine import Tables
from nautilus.frontend.syntax.lalr.tables import from_json, tables_of, to_json

if TYPE_CHECKING:
    from lark import Lark

_TABLES = "tables 1"  # another number for another form of the tables
_PACKAGE = Path(__file__).resolve().parents[2]


def grammar_file(name: str) -> Path:
    """The path of ``naut.lark`` or ``prelude.naut``. Raises InternalError where it is missing."""
    for folder in (_PACKAGE / "grammar", _PACKAGE.parent / "grammar"):
        if (folder / name).is_file():
            return folder / name
    raise InternalError(f"{name} is missing from the installation (looked in {_PACKAGE}/grammar)")


def cache_dir() -> Path:
    """The cache directory, which may not exist yet."""
    if explicit := os.environ.get("NAUTILUS_CACHE_DIR"):
        return Path(explicit)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "nautilusc"
    return Path(os.path.expanduser("~")) / ".cache" / "nautilusc"


@lru_cache(maxsize=1)
def prelude_text() -> str:
    """The prelude's source."""
    return grammar_file("prelude.naut").read_text(encoding="utf-8")


def build_parser(transformer: Any, postlex: Any) -> Lark:
    """The parser of one statement; ``transformer``'s callbacks run as rules are reduced.

    ``postlex.always_accept`` names the terminals that no rule uses and the lexer must keep.
    """
    import lark

    text = grammar_file("naut.lark").read_text(encoding="utf-8")
    options: dict[str, Any] = {
        "start": "statement",
        "parser": "lalr",
        "lexer": "basic",
        "keep_all_tokens": True,
        "maybe_placeholders": False,
        "transformer": transformer,
        "postlex": postlex,
    }
    cache = _cache_file(text, lark.__version__)
    if cache is not None:
        try:
            return lark.Lark(text, cache=cache, **options)
        except Exception:  # build without a cache that is unusable for any reason
            pass
    return lark.Lark(text, **options)


def load_tables(builder: object, postlex: Any) -> Tables:
    """The tables of the parser; ``builder`` has the callbacks, and ``postlex`` is that of :func:`build_parser`."""
    file = _cache_file(grammar_file("naut.lark").read_text(encoding="utf-8"), _TABLES, "json")
    try:
        return from_json(Path(file or "").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):  # there are none, or they are unusable
        made = tables_of(build_parser(builder, postlex), builder)
    if file is not None:
        with suppress(OSError):
            own = Path(f"{file}.{os.getpid()}")
            own.write_text(to_json(made), encoding="utf-8")
            own.replace(file)  # no other compilation reads a part
    return made


def _cache_file(text: str, version: str, suffix: str = "lark") -> str | None:
    key = hashlib.sha256(f"{version}/{sys.version}/{text}".encode()).hexdigest()[:16]
    try:
        folder = cache_dir()
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder / f"grammar-{key}.{suffix}")
    except OSError:
        return None
