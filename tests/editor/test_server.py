"""The language server over standard input and output, as an editor uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from nautilus.cli.main import main
from tests.shipped import ROOT

TEXT = "# \U0001f600\ndim N\ninput X: f32[N]\noutput Y: f32[N]\nY[i] = X[ i ] + exp(Z[i])  # \U0001f600\n"
needs_pygls = pytest.mark.skipif(find_spec("pygls") is None, reason="needs pygls")


class Editor:
    """The other end of the protocol."""

    def __init__(self, folder: Path) -> None:
        self.uri = (folder / "x.naut").as_uri()
        self.version = 0
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nautilus", "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder,
            stderr=subprocess.DEVNULL, env=environment,
        )  # fmt: skip

    def send(self, method: str, params: Any, **more: Any) -> None:
        given = {} if params is None else {"params": params}
        data = json.dumps({"jsonrpc": "2.0", "method": method, **given, **more}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout is not None
        length = 0
        while (line := self.process.stdout.readline().strip()) or not length:
            assert line or self.process.poll() is None, "the server ended"
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(self.process.stdout.read(length))

    def ask(self, method: str, params: Any) -> Any:
        """The answer to a request; an error is an answer too."""
        self.send(method, params, id=7)
        while (found := self.read()).get("id") != 7:
            pass
        return found.get("result", found.get("error"))

    def show(self, text: str) -> list[Any]:
        """Open or change the text. Returns the messages about it."""
        self.version += 1
        if self.version == 1:
            about = {"uri": self.uri, "languageId": "naut", "version": 1, "text": text}
            self.send("textDocument/didOpen", {"textDocument": about})
        else:
            about = {"uri": self.uri, "version": self.version}
            self.send("textDocument/didChange", {"textDocument": about, "contentChanges": [{"text": text}]})
        while (found := self.read())["method"] != "textDocument/publishDiagnostics":
            pass
        assert found["params"]["uri"] == self.uri
        return list(found["params"]["diagnostics"])

    def at(self, what: str, line: int, character: int, **more: Any) -> Any:
        place = {"line": line, "character": character}
        return self.ask(f"textDocument/{what}", {"textDocument": {"uri": self.uri}, "position": place, **more})


@pytest.fixture
def editor(tmp_path: Path) -> Iterator[Editor]:
    made = Editor(tmp_path)
    made.ask("initialize", {"processId": None, "rootUri": None, "capabilities": {},
                            "initializationOptions": {"dims": {"N": 8}}})  # fmt: skip
    made.send("initialized", {})
    yield made
    made.ask("shutdown", None)
    made.send("exit", None)
    assert made.process.wait(20) == 0


@needs_pygls
def test_a_session(editor: Editor) -> None:
    (found,) = editor.show(TEXT)
    assert (found["message"], found["code"], found["severity"])[1:] == ("N0201", 1)
    assert found["range"] == {"start": {"line": 4, "character": 20}, "end": {"line": 4, "character": 21}}
    assert "input of 8 elements" in editor.at("hover", 4, 7)["contents"]["value"]
    assert editor.at("rename", 4, 7, newName="A")["message"].startswith("no name of a spec with errors")
    (edit,) = editor.at("formatting", 0, 0, options={"tabSize": 4, "insertSpaces": True})
    assert edit["newText"].split("\n")[4] == "Y[i] = X[i] + exp(Z[i])  # \U0001f600"

    assert editor.show(edit["newText"].replace("exp(Z[i])", "exp(X[i])")) == []
    assert editor.at("formatting", 0, 0, options={"tabSize": 4, "insertSpaces": True}) == []
    edits = editor.at("rename", 4, 7, newName="A")["changes"][editor.uri]
    assert [(e["range"]["start"]["line"], e["newText"]) for e in edits] == [(2, "A"), (4, "A"), (4, "A")]
    assert editor.at("prepareRename", 4, 7)["start"] == {"line": 4, "character": 7}
    (place,) = editor.at("definition", 3, 7)
    assert place["uri"] == editor.uri and place["range"]["start"] == {"line": 4, "character": 0}
    assert len(editor.at("references", 4, 7, context={"includeDeclaration": True})) == 3
    assert "X" in [i["label"] for i in editor.at("completion", 4, 7)]


@needs_pygls
def test_messages_in_an_included_file_and_their_end(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "f.naut").write_text("dim =\n")
    text = 'include "f.naut"\ninput X: f32[8]\noutput Y: f32[8]\nY[i] = X[i]\n'
    assert editor.show(text) == []
    there = editor.read()["params"]
    assert there["uri"] == (tmp_path / "f.naut").as_uri() and there["diagnostics"][0]["code"] == "N0104"
    editor.show(text.partition("\n")[2])
    assert editor.read()["params"] == {"uri": there["uri"], "diagnostics": []}


def test_without_pygls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("pygls", "pygls.lsp", "pygls.lsp.server"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["lsp"]) == 3
    assert "pip install 'nautilusc[editor]'" in capsys.readouterr().err
