"""The room of plots: its names, its colours, and what happens without matplotlib."""

import subprocess
import sys

import numpy as np
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


@pytest.mark.parametrize("dark", [False, True])
def test_no_two_colours_look_alike(dark: bool) -> None:
    """In CIELAB, with the white of sRGB, where 2.3 is just noticeable."""
    every = [colour_of(one, dark=dark) for one in range(N_COLOURS)]
    srgb = np.array([[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in every])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = linear @ to_xyz.T / to_xyz.sum(axis=1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    lab = np.column_stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])])
    apart = np.linalg.norm(lab[:, None] - lab[None], axis=2) + 1000 * np.eye(N_COLOURS)
    assert apart.min() > 10
    assert apart[:16, :16].min() > 14


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
