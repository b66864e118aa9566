"""Functions compiled without counts of references must make no array and give none back (`kernels.compiled`).

Numba lets one return its argument; the caller then gives back a reference that nobody took, and memory in use is freed.
"""

import ast
from pathlib import Path

import pytest

import shoal

CORE = Path(shoal.__file__).parent
PLAIN = {"None", "float", "int", "bool", "Any", "np.float32"}
"""What an uncounted function may say it gives back: numbers (`Any`: their type is inferred), or tuples of these."""
NUMBERS = {"np.uint8", "np.float32", "np.float64", "np.int64", "np.uint64", "np.sqrt", "np.argmax"}


def uncounted() -> list[tuple[str, ast.FunctionDef]]:
    found = []
    for path in sorted(CORE.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "shoal.runtime.kernels" in text else ():
            if isinstance(node, ast.FunctionDef):
                marks = [ast.unparse(mark) for mark in node.decorator_list]
                helper = any(m.startswith("compiled(") and "makes_arrays=True" not in m for m in marks)
                if helper or any(m.startswith("kernel(") and "makes_arrays=False" in m for m in marks):
                    found.append((f"{path.parent.name}.{path.stem}.{node.name}", node))
    return found


def arrays_given(function: ast.FunctionDef) -> list[str]:
    """Returned names that are arguments of an array's type, and annotations that are no numbers; none of a function
    whose lines are put into its caller's, as nothing is returned then."""
    if any("inline='always'" in ast.unparse(mark) for mark in function.decorator_list):
        return []
    said = ast.unparse(function.returns) if function.returns else "nothing"
    parts = said.removeprefix("tuple[").removesuffix("]").split(", ")
    arrays = {a.arg for a in function.args.args if a.annotation and "Array" in ast.unparse(a.annotation)}
    returned = {n.id for r in ast.walk(function) if isinstance(r, ast.Return) and r.value for n in names(r.value)}
    return sorted(returned & arrays) + [part for part in parts if part not in PLAIN]


def names(value: ast.expr) -> list[ast.Name]:
    """Names given back as they are, alone or in a tuple."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return [part for part in parts if isinstance(part, ast.Name)]


def test_there_are_such_functions() -> None:
    assert len(uncounted()) > 80


def test_an_uncounted_function_gives_back_numbers_and_makes_no_array() -> None:
    wrong = {}
    for name, function in uncounted():
        called = {made_by(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
        made = {c for c in called if c.startswith("np.")} - NUMBERS
        if made or arrays_given(function):
            wrong[name] = (made, arrays_given(function))
    assert wrong == {}


def made_by(called: ast.expr) -> str:
    """What makes the value of a call; of a view of a number, what makes that number."""
    if isinstance(called, ast.Attribute) and called.attr == "view" and isinstance(called.value, ast.Call):
        return made_by(called.value.func)
    return ast.unparse(called)


def test_a_view_of_a_number_is_one_and_a_view_of_an_array_is_found() -> None:
    number = ast.parse("np.int64(n).view(t)", mode="eval").body
    array = ast.parse("np.empty(3).view(t)", mode="eval").body
    assert isinstance(number, ast.Call)
    assert isinstance(array, ast.Call)
    assert made_by(number.func) in NUMBERS
    assert made_by(array.func) not in NUMBERS


def test_views_may_come_from_lines_that_stand_in_the_caller() -> None:
    (function,) = ast.parse("@compiled(inline='always')\ndef f(a: Array) -> Scratch:\n    return Scratch(a[:2])").body
    assert isinstance(function, ast.FunctionDef)
    assert arrays_given(function) == []


@pytest.mark.parametrize(
    "source", ["def f(a: Array) -> Any:\n    return a", "def f(a: Array) -> tuple[int, Array]:\n    return 1, a"]
)
def test_what_must_not_be_is_found(source: str) -> None:
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert arrays_given(function)
