"""Write pages from the programs themselves: the command line from its help, the routes from OpenAPI, and the notebook
from what it holds."""

import base64
import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")


def write(folder: Path) -> None:
    """Write `commands.md`, `routes.md` and `notebook.md` with its pictures into the folder.

    A file that is right already stays, for a quicker build.
    """
    notebook = json.loads((folder.parent / "examples" / "tour.ipynb").read_text(encoding="utf-8"))
    texts = {"commands.md": _commands(), "routes.md": _routes()}
    pages = {name: text.encode() for name, text in texts.items()} | _notebook(notebook)
    for name, content in pages.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def _notebook(notebook: dict[str, Any]) -> dict[str, bytes]:
    """A page of a notebook's text, code and outputs, and its pictures."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"notebook-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![What the code above draws]({name})")
            else:
                text = "".join(output.get("text") or data["text/plain"]).rstrip()
                parts.append(f"```text\n{text}\n```")
    return {"notebook.md": ("\n\n".join(parts) + "\n").encode()} | pictures


def _commands() -> str:
    os.environ |= {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    import typer.main

    from shoal_service.cli.root import app

    shoal, parts = typer.main.get_command(app), ["# Command line\n", "Every command, as `--help` shows it.\n"]

    def visit(command: Any, path: list[str]) -> None:
        with redirect_stdout(io.StringIO()) as shown:
            shoal.main([*path, "--help"], prog_name="shoal", standalone_mode=False)
        text = "\n".join(line.rstrip() for line in shown.getvalue().strip("\n").split("\n"))
        heading = " ".join(["shoal", *path])
        parts.append(f"{'##' if len(path) < 2 else '###'} {heading}\n\n```text\n{text}\n```\n")
        for name, child in getattr(command, "commands", {}).items():
            visit(child, [*path, name])

    visit(shoal, [])
    return "\n".join(parts)


def _routes() -> str:
    from shoal_service.app import create_app
    from shoal_service.settings import Settings

    document = create_app(Settings(store="memory")).openapi()
    parts = [
        "# HTTP routes\n",
        "Every route of the service. `/docs` of a running service shows the same with all fields of bodies and answers,"
        " and `/openapi.json` is the document for programs."
        " [HTTP interface](../http.md) explains how they work together.\n",
    ]
    for path, operations in document["paths"].items():
        for method in METHODS:
            if (operation := operations.get(method)) is not None:
                parts.append(_route(f"{method.upper()} {path}", operation))
    return "\n".join(parts)


def _route(name: str, operation: dict[str, Any]) -> str:
    lines = [f"## {name}\n", operation.get("description") or operation.get("summary", ""), ""]
    parameters = operation.get("parameters", [])
    if parameters:
        lines += ["| parameter | in | meaning |", "|---|---|---|"]
        lines += [f"| `{one['name']}` | {one['in']} | {_cell(one.get('description', ''))} |" for one in parameters]
        lines.append("")
    answers = operation["responses"]
    lines += ["| status | meaning |", "|---|---|"]
    lines += [f"| {status} | {_cell(answer.get('description', ''))} |" for status, answer in answers.items()]
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
