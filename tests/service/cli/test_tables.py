"""Tables for people, as a terminal of 80 columns shows them."""

import io

import numpy as np
import pytest
from rich.console import Console

from shoal_service.cli.tables import Row, component_table


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
