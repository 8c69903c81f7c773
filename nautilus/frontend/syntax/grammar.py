"""Finds the grammar and the prelude, and builds the LALR parser or loads its tables from the cache.

The files are in ``grammar/`` beside the package in a checkout, and in ``nautilus/grammar/`` in an
installed wheel.  Lark is imported only here, when its parser is first built: where the cache has no
tables, and to explain a statement that does not parse.  Both are cached under ``NAUTILUS_CACHE_DIR``,
else ``XDG_CACHE_HOME/nautilusc``, else ``~/.cache/nautilusc``.  A cache that cannot be read or written
is no error.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nautilus.core.errors import InternalError
from nautilus.frontend.syntax.tables import Parser, tables_of

if TYPE_CHECKING:
    from lark import Lark

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


def load_parser(callbacks: Any, build: Callable[[], Lark]) -> Parser:
    """The parser of one statement by its tables, which are those of the parser that ``build`` makes."""
    path = _cache_file(grammar_file("naut.lark").read_text(encoding="utf-8"), "tables", "json")
    if path is not None:
        with suppress(Exception):  # a cache that is unusable for any reason
            return Parser(json.loads(path.read_bytes()), callbacks)
    tables = tables_of(build())
    if path is not None:
        with suppress(OSError):
            own = path.with_suffix(f".{os.getpid()}")
            own.write_text(json.dumps(tables))
            os.replace(own, path)  # other processes never see a part of it
    return Parser(tables, callbacks)


def build_parser(transformer: Any, postlex: Any) -> Lark:
    """Lark's parser of one statement; ``transformer``'s callbacks run as rules are reduced.

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
    cache = _cache_file(text, lark.__version__, "lark")
    if cache is not None:
        try:
            return lark.Lark(text, cache=str(cache), **options)
        except Exception:  # build without a cache that is unusable for any reason
            pass
    return lark.Lark(text, **options)


def _cache_file(text: str, version: str, suffix: str) -> Path | None:
    key = hashlib.sha256(f"{version}/{sys.version}/{text}".encode()).hexdigest()[:16]
    try:
        folder = cache_dir()
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"grammar-{key}.{suffix}"
    except OSError:
        return None
