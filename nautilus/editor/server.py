"""``nautilusc lsp``: the language server, a thin layer over the functions of this room.

It holds no state of its own: each request is answered from the text that the editor sent last.  An editor may give
``{"dims": {"N": 4096}, "arch": "sm_90a"}`` as initialization options: sizes as ``--dim`` gives them, and the target
whose kernels a hover names.  pygls is imported here only.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from nautilus import __version__
from nautilus.core.errors import Diagnostic, DiagnosticError, InputError, Severity, ToolchainError
from nautilus.core.source import Span
from nautilus.editor.complete import completions
from nautilus.editor.document import Document
from nautilus.editor.hover import hover
from nautilus.editor.kernels import kernels
from nautilus.editor.layout import formatted
from nautilus.editor.navigate import definitions, references, rename, renameable
from nautilus.frontend.syntax.grammar import grammar_file
from nautilus.frontend.syntax.load import PRELUDE
from nautilus.targets.records import DEFAULT_TARGET, NAMES

_ONE = Lock()  # the front end sets limits of the whole process while it runs
_SOURCE = "nautilusc"


def serve() -> None:
    """Answer requests on standard input until the editor ends.  Raises ToolchainError where pygls is missing."""
    try:
        import pygls.lsp.server  # noqa: F401
    except ImportError as error:
        raise ToolchainError("lsp", f"{error}; pip install 'nautilusc[editor]'") from error
    logging.getLogger("pygls").setLevel(logging.CRITICAL)  # refusals are answers, and editors show them
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb") as answers, redirect_stdout(sys.stderr):
        make_server().start_io(requests, answers)  # which closes both


def make_server() -> Any:
    """The server with its features."""
    from lsprotocol import types as lsp
    from pygls.lsp.server import LanguageServer

    server = LanguageServer("nautilusc", __version__)
    session = Session(server, lsp)

    def check(ls: Any, params: Any) -> None:
        with _ONE:
            session.publish(params.text_document.uri)

    for event in (lsp.TEXT_DOCUMENT_DID_OPEN, lsp.TEXT_DOCUMENT_DID_CHANGE, lsp.TEXT_DOCUMENT_DID_SAVE):
        server.feature(event)(check)
    server.feature(lsp.INITIALIZE)(partial(_begin, session))
    server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)(partial(_end, session))
    asked = {
        lsp.TEXT_DOCUMENT_HOVER: session.hover, lsp.TEXT_DOCUMENT_DEFINITION: session.definition,
        lsp.TEXT_DOCUMENT_REFERENCES: session.references, lsp.TEXT_DOCUMENT_FORMATTING: session.formatting,
        lsp.TEXT_DOCUMENT_COMPLETION: session.completion, lsp.TEXT_DOCUMENT_PREPARE_RENAME: session.prepare,
    }  # fmt: skip
    for name, answer in asked.items():
        server.feature(name)(partial(_answer, answer))
    server.feature(lsp.TEXT_DOCUMENT_RENAME, lsp.RenameOptions(prepare_provider=True))(partial(_answer, session.rename))
    return server


def _begin(session: Session, ls: Any, params: Any) -> None:
    given = params.initialization_options
    session.options = given if isinstance(given, dict) else {}


def _end(session: Session, ls: Any, params: Any) -> None:
    session.clear(params.text_document.uri)


def _answer(feature: Callable[[Any], Any], ls: Any, params: Any) -> Any:
    """What ``feature`` says; a reason why there is no answer is an error that the editor shows."""
    from pygls.exceptions import JsonRpcInvalidParams

    try:
        with _ONE:
            return feature(params)
    except InputError as error:
        raise JsonRpcInvalidParams(str(error)) from error


class Session:
    """The answers to an editor. ``lsp``: the types of the protocol; ``options``: what the editor gave at the start."""

    def __init__(self, ls: Any, lsp: Any) -> None:
        self.ls, self.lsp = ls, lsp
        self.options: dict[str, Any] = {}
        self.shown: dict[str, set[str]] = {}  # the included files that have messages, by the text that includes them

    def document(self, uri: str) -> Document:
        """The text that the editor shows at ``uri``."""
        found = self.ls.workspace.get_text_document(uri)
        given = self.options.get("dims")
        dims = given.items() if isinstance(given, dict) else ()
        sizes = tuple((str(n), v) for n, v in dims if isinstance(v, int) and not isinstance(v, bool))
        path = Path(found.path)
        return Document(found.source.replace("\r\n", "\n").replace("\r", "\n"), str(path), path.parent, sizes)

    def _place(self, params: Any) -> tuple[int, int]:
        """Line and column, from 1, of the place that ``params`` names."""
        at = self.ls.workspace.get_text_document(params.text_document.uri).position_from_client_units(params.position)
        return at.line + 1, at.character + 1

    def _range(self, span: Span) -> Any:
        """``span`` as the editor counts; the start of the text for one without a line."""
        from pygls.workspace import ServerTextPosition

        lines = span.source.text.split("\n")
        ends = ((max(1, span.line), max(1, span.column)), (max(1, span.end_line), max(1, span.end_column)))
        codec = self.ls.workspace.position_codec
        start, end = (codec.position_to_client_units(lines, ServerTextPosition(a - 1, b - 1)) for a, b in ends)
        return self.lsp.Range(start, end)

    def _locations(self, spans: Iterable[Span]) -> list[Any]:
        return [self.lsp.Location(_uri(s), self._range(s)) for s in spans]

    def publish(self, uri: str) -> None:
        """Send the findings about the text; those in an included file stand at the place of that file."""
        own = self.document(uri)
        found: dict[str, list[Any]] = {there: [] for there in (uri, *self.shown.get(uri, ()))}
        for d in own.analysis.diagnostics:
            there = uri if d.span.source.name == own.name or d.span.line == 0 else _uri(d.span)
            found.setdefault(there, []).append(self._diagnostic(d))
        self.shown[uri] = {there for there in found if there != uri and found[there]}
        for there, messages in found.items():
            self.ls.text_document_publish_diagnostics(self.lsp.PublishDiagnosticsParams(there, messages))

    def clear(self, uri: str) -> None:
        """Take back the findings about a text that the editor no longer shows."""
        for there in (uri, *self.shown.pop(uri, ())):
            self.ls.text_document_publish_diagnostics(self.lsp.PublishDiagnosticsParams(there, []))

    def _diagnostic(self, d: Diagnostic) -> Any:
        notes = [
            self.lsp.DiagnosticRelatedInformation(self.lsp.Location(_uri(n.span), self._range(n.span)), n.message)
            for n in d.notes if n.span.line > 0
        ]  # fmt: skip
        levels = self.lsp.DiagnosticSeverity
        severity = levels.Error if d.severity is Severity.ERROR else levels.Warning
        return self.lsp.Diagnostic(
            self._range(d.span), message(d), severity=severity, code=d.code, source=_SOURCE, related_information=notes,
        )  # fmt: skip

    def hover(self, params: Any) -> Any:
        """What is known of the name at a position, with the kernels; None where there is none."""
        own = self.document(params.text_document.uri)
        given = str(self.options.get("arch"))
        found = hover(own, *self._place(params), lambda: kernels(own, given if given in NAMES else DEFAULT_TARGET))
        if found is None:
            return None
        return self.lsp.Hover(self._markdown(found.text), self._range(found.span))

    def definition(self, params: Any) -> Any:
        """The place that defines the name at a position."""
        return self._locations(definitions(self.document(params.text_document.uri), *self._place(params)))

    def references(self, params: Any) -> Any:
        """Every place of the name at a position."""
        own = self.document(params.text_document.uri)
        return self._locations(references(own, *self._place(params), params.context.include_declaration))

    def completion(self, params: Any) -> Any:
        """The words that may stand at a position."""
        known = self.lsp.CompletionItemKind
        kinds = {
            "keyword": known.Keyword, "type": known.TypeParameter, "function": known.Function,
            "tensor": known.Variable, "number": known.Constant, "index": known.Variable, "file": known.File,
        }  # fmt: skip
        return [
            self.lsp.CompletionItem(
                i.label, kind=kinds[i.kind], detail=i.detail or None, documentation=self._markdown(i.documentation)
            )
            for i in completions(self.document(params.text_document.uri), *self._place(params))
        ]

    def _markdown(self, text: str) -> Any:
        return self.lsp.MarkupContent(self.lsp.MarkupKind.Markdown, text) if text else None

    def prepare(self, params: Any) -> Any:
        """The range of the name at a position, which may be renamed. Raises where it may not."""
        return self._range(renameable(self.document(params.text_document.uri), *self._place(params)).span)

    def rename(self, params: Any) -> Any:
        """The edits that give the name at a position another name."""
        uri = params.text_document.uri
        spans = rename(self.document(uri), *self._place(params), params.new_name)
        return self.lsp.WorkspaceEdit({uri: [self.lsp.TextEdit(self._range(s), params.new_name) for s in spans]})

    def formatting(self, params: Any) -> Any:
        """One edit of the whole text; none where it does not parse or is laid out already."""
        own = self.document(params.text_document.uri)
        try:
            made = formatted(own.source)
        except DiagnosticError:
            return []
        if made == self.ls.workspace.get_text_document(params.text_document.uri).source:
            return []
        whole = self.lsp.Range(self.lsp.Position(0, 0), self.lsp.Position(own.text.count("\n") + 1, 0))
        return [self.lsp.TextEdit(whole, made)]


def _uri(span: Span) -> str:
    path = grammar_file(PRELUDE) if span.source.name == PRELUDE else Path(span.source.name)
    return path.resolve().as_uri()


def message(d: Diagnostic) -> str:
    """The message of the command line with its hint."""
    return d.message if d.hint is None else f"{d.message}\nhint: {d.hint}"
