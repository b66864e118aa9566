"""Tables for people, as a terminal of 80 columns shows them."""

import io

import numpy as np
import pytest
from rich.console import Console

from shoal_service.cli.tables import Row, component_table, print_table


@pytest.mark.parametrize("n_features", [1, 3, 24, 50])
def test_numbers_stay_whole_and_ticks_are_cut(n_features: int) -> None:
    rng = np.random.default_rng(0)
    rows = [Row(10_000 + i, 0.06, 681_200.5, rng.normal(size=n_features), 30_000, 999_000 + i) for i in range(3)]
    shown = io.StringIO()
    Console(file=shown, width=80).print(component_table("three", rows, "footer"))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for i in range(3):
        (line,) = [line for line in lines if str(10_000 + i) in line]
        assert {"0.0600", "681,200.5", "30,000", f"{999_000 + i:,}"} <= set(line.split())


def test_each_of_few_features_has_a_column_whose_numbers_end_together() -> None:
    rows = [Row(i, 0.5, 9.0, mean, 1, 2) for i, mean in enumerate([(8.084, -9.623), (-0.872, 10.97)])]
    shown = io.StringIO()
    Console(file=shown, width=80).print(component_table("two", rows, "footer", ["cpu", "memory"]))
    head, *lines = [line.rstrip() for line in shown.getvalue().splitlines() if " 1 " in line or "memory" in line]
    assert len(lines) == 2
    for line in lines:
        assert [line[: head.index(name) + len(name)][-2:].isdigit() for name in ("cpu", "memory")] == [True, True]


def test_a_narrow_terminal_shows_the_whole_of_a_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = "/static/scripts/of/the/new/front/page/app-47.js"
    print_table(("key", "time", "payload"), [("a840", "2026-01-31T12:13:56Z", path)], whole=(1,))
    lines = capsys.readouterr().out.splitlines()
    assert any("2026-01-31T12:13:56Z" in line for line in lines)
    assert "".join(line[30:].strip() for line in lines[3:]) == path
