"""Ask pyright's language server, on which Pylance is built, what an editor shows when the mouse is over a public name.

    python tests/studies/hover.py

The stub, `bayeslaw/__init__.pyi`, only re-exports, so names should be shown with the docstring of their definition. Exits 1 if a public name shows no docstring, or
that of another object.
"""

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import bayeslaw

STUB = Path(bayeslaw.__file__).with_name("__init__.pyi")


class Server:
    """Pyright's language server, spoken to over pipes (LSP 3.17)."""

    def __init__(self, folder: Path):
        command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.questions = 0
        uri = folder.as_uri()
        hover = {"hover": {"contentFormat": ["plaintext"]}}
        able = {"workspace": {"configuration": True}, "textDocument": hover}
        folders = [{"uri": uri, "name": "probe"}]
        self.ask(
            "initialize",
            {"rootUri": uri, "capabilities": able, "workspaceFolders": folders},
        )
        self.tell("initialized", {})

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The answer to a question; what the server asks meanwhile is answered."""
        self.questions += 1
        self._send({"id": self.questions, "method": method, "params": params})
        while True:
            message = self._receive()
            if "method" not in message:
                if message.get("id") == self.questions:
                    return message.get("result")
            elif "id" in message:
                items = message.get("params", {}).get("items", [])
                settings = [{"pythonPath": sys.executable} for _ in items]
                self._send({"id": message["id"], "result": settings or None})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        pipe: IO[bytes] = self.process.stdin  # type: ignore[assignment]
        pipe.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        pipe.flush()

    def _receive(self) -> dict[str, Any]:
        pipe: IO[bytes] = self.process.stdout  # type: ignore[assignment]
        length = 0
        while line := pipe.readline().strip():
            if line.lower().startswith(b"content-length"):
                length = int(line.split(b":")[1])
        if not length:
            raise SystemExit("the language server has ended: pip install pyright")
        return json.loads(pipe.read(length))


def public_names() -> list[str]:
    """Those of the stub, without modules."""
    nodes = ast.parse(STUB.read_text()).body
    names = [alias.name for node in nodes for alias in node.names]  # type: ignore
    return [name for name in names if not inspect.ismodule(getattr(bayeslaw, name))]


def hovered(names: list[str]) -> dict[str, str]:
    """What is shown over each name."""
    folder = STUB.parents[1]  # of which the probe is a file that is only said to be
    server = Server(folder)
    uri = (folder / "hover_probe.py").as_uri()
    text = "import bayeslaw\n" + "".join(f"bayeslaw.{name}\n" for name in names)
    document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    server.tell("textDocument/didOpen", {"textDocument": document})
    shown = {}
    for line, name in enumerate(names, start=1):
        place = {"line": line, "character": len("bayeslaw.") + 1}
        where = {"textDocument": {"uri": uri}, "position": place}
        answer = server.ask("textDocument/hover", where)
        shown[name] = answer["contents"]["value"] if answer else ""
    server.process.kill()
    return shown


def main() -> None:
    names = public_names()
    wrong = []
    for name, text in hovered(names).items():
        first = (inspect.getdoc(getattr(bayeslaw, name)) or "").partition("\n")[0]
        if not first or first not in text:
            wrong.append(name)
    print(f"{len(names) - len(wrong)} of {len(names)} names show their own docstring")
    if wrong:
        raise SystemExit(f"not: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
