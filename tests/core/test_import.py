"""Importing the package is light; what it offers loads on first use."""

import subprocess
import sys

import shoal


def _run(code: str) -> str:
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return found.stdout.strip()


def test_import_is_fast_and_loads_nothing_heavy() -> None:
    """Best of three: the limit is on the import, not on what else the machine does."""
    code = (
        f"import sys, time; sys.path[:0] = {[entry for entry in sys.path if entry]!r}\n"
        "start = time.perf_counter(); import shoal; took = time.perf_counter() - start\n"
        "heavy = {'numba', 'sklearn', 'scipy', 'llvmlite', 'pandas'} & set(sys.modules)\n"
        "print(took, *sorted(heavy))"
    )
    answers = [_run(code).split() for _ in range(3)]
    assert all(len(answer) == 1 for answer in answers), answers
    assert min(float(answer[0]) for answer in answers) < 0.5


def test_all_public_names_load() -> None:
    for name in shoal.__all__:
        assert getattr(shoal, name) is not None
        assert name in dir(shoal)


def test_public_names() -> None:
    assert set(shoal.__all__) == {
        "DPMixture",
        "InputError",
        "NoPointsError",
        "NotFiniteError",
        "NotNumericError",
        "OutsideDomainError",
        "SettingError",
        "ShapeError",
        "ShoalError",
        "SnapshotDamagedError",
        "SnapshotError",
        "SnapshotVersionError",
        "StreamingDPMixture",
        "UnknownComponentError",
        "families",
    }


def test_an_unknown_name_is_refused() -> None:
    assert not hasattr(shoal, "no_such_name")
