"""A constant of a module has one value: a second assignment would change it for the functions above as well."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import shoal
import shoal_service


@pytest.mark.parametrize("package", [shoal, shoal_service], ids=lambda package: package.__name__)
def test_no_constant_is_assigned_twice(package: object) -> None:
    """Two numbers of power steps had one name, so that splits took 2 steps in place of 30."""
    files = list(Path(str(package.__file__)).parent.rglob("*.py"))  # type: ignore[attr-defined]
    assert len(files) > 100
    twice = {file.name: names for file in files if (names := _assigned_twice(ast.parse(file.read_bytes())))}
    assert twice == {}


def _assigned_twice(module: ast.Module) -> list[str]:
    """Names in capitals that the top level of a module assigns more than once."""
    targets = [target for line in module.body if isinstance(line, ast.Assign) for target in line.targets]
    targets += [line.target for line in module.body if isinstance(line, ast.AnnAssign) and line.value is not None]
    names = Counter(node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
    return [name for name, times in names.items() if times > 1 and name.isupper()]


def test_a_second_assignment_is_seen() -> None:
    assert _assigned_twice(ast.parse("_A, _B = 1, 2\nx = 3\nx = 4\n_C, _B = 5, 6\n_D: int = 7\n_D = 8")) == ["_B", "_D"]
