"""Run the code of a notebook in order, and keep what it prints and draws in the file: python docs/run_notebook.py FILE

It needs matplotlib and no Jupyter. `outputs_of` is what the tests compare with the file.
"""

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
from matplotlib import pyplot

DPI = 72


def outputs_of(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """What each code cell prints, gives and draws, as outputs of a notebook; an error ends the run."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            found.append(_run("".join(cell["source"]), namespace, len(found) + 1))
    return found


def _run(source: str, namespace: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run one cell. The value of its last line is shown, unless that is nothing or a display."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), namespace)
    outputs = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    figures = [pyplot.figure(one) for one in pyplot.get_fignums()]
    for figure in figures:
        image = io.BytesIO()
        figure.savefig(image, dpi=DPI, metadata={"Software": None})
        data = {"image/png": base64.b64encode(image.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    pyplot.close("all")
    if value is not None and not figures:
        data = {"text/plain": _lines(repr(value))}
        outputs.append({"output_type": "execute_result", "execution_count": number, "data": data, "metadata": {}})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run a notebook, and write it with its outputs."""
    path = Path(sys.argv[1])
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(code, outputs_of(notebook), strict=True), 1):
        cell["outputs"], cell["execution_count"] = outputs, number
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
