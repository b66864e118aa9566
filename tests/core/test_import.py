"""Importing the package is light; what it offers loads on first use."""

import subprocess
import sys

import shoal


def _run(code: str) -> str:
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return found.stdout.strip()


def test_import_loads_its_own_errors_and_nothing_of_others() -> None:
    """What makes an import slow is what it loads: NumPy a tenth of a second, the numerical libraries two seconds."""
    code = (
        f"import sys; sys.path[:0] = {[entry for entry in sys.path if entry]!r}\n"
        "before = set(sys.modules); import shoal; new = set(sys.modules) - before\n"
        "print(*sorted(name for name in new if name.partition('.')[0] not in sys.stdlib_module_names))"
    )
    assert _run(code).split() == ["shoal", "shoal.errors"]


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


def test_a_stream_loads_no_sampler_and_no_search() -> None:
    """Half of the estimators' own modules are of batch methods."""
    code = (
        f"import sys; sys.path[:0] = {[entry for entry in sys.path if entry]!r}\n"
        "from shoal import StreamingDPMixture\n"
        "print(*sorted(m for m in sys.modules if m.startswith(('shoal.sampling', 'shoal.search'))))"
    )
    assert _run(code) == ""


def test_all_names_of_the_estimators_load() -> None:
    from shoal import estimators

    for name in estimators.__all__:
        assert getattr(estimators, name) is not None
    assert not hasattr(estimators, "no_such_name")
