"""The room of plots: its names, its colours, and what happens without matplotlib."""

import subprocess
import sys

import pytest

import shoal.plotting
from shoal.plotting import N_COLOURS, MixtureDisplay, colour_of


def test_all_names_load() -> None:
    for name in shoal.plotting.__all__:
        assert getattr(shoal.plotting, name) is not None
        assert name in dir(shoal.plotting)
    assert not hasattr(shoal.plotting, "no_such_name")


def test_colours_are_functions_of_the_id_and_differ_until_they_repeat() -> None:
    for dark in (False, True):
        every = [colour_of(one, dark=dark) for one in range(N_COLOURS)]
        assert len(set(every)) == N_COLOURS
        assert colour_of(N_COLOURS + 3, dark=dark) == every[3]
        assert colour_of(None, dark=dark) == colour_of(-1, dark=dark) not in every


def test_lives_need_neither_matplotlib_nor_numpy() -> None:
    code = (
        f"import sys; sys.path[:0] = {[entry for entry in sys.path if entry]!r}\n"
        "from shoal.plotting import lives_of; lives_of(())\n"
        "print(*sorted(name for name in ('matplotlib', 'numpy', 'sklearn') if name in sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == ""


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, batch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'shoal\[plot\]'"):
        MixtureDisplay.from_estimator(batch)
