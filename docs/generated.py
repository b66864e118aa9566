"""Write reference pages from the programs themselves: the command line from its help, the routes from OpenAPI."""

import os
from pathlib import Path
from typing import Any

METHODS = ("get", "post", "put", "patch", "delete")


def write(folder: Path) -> None:
    """Write `commands.md` and `routes.md` into the folder. A file that is right already stays, for a quicker build."""
    for name, text in (("commands.md", _commands()), ("routes.md", _routes())):
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _commands() -> str:
    os.environ |= {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    import typer.main
    from typer.testing import CliRunner

    from shoal_service.cli.root import app

    runner, parts = CliRunner(), ["# Command line\n", "Every command, as `--help` shows it.\n"]

    def visit(command: Any, path: list[str]) -> None:
        shown = runner.invoke(app, [*path, "--help"], prog_name="shoal")
        text = "\n".join(line.rstrip() for line in shown.output.strip("\n").split("\n"))
        heading = " ".join(["shoal", *path])
        parts.append(f"{'##' if len(path) < 2 else '###'} {heading}\n\n```text\n{text}\n```\n")
        for name, child in getattr(command, "commands", {}).items():
            visit(child, [*path, name])

    visit(typer.main.get_command(app), [])
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
