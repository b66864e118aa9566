"""Files written whole: a disk that is full, and devices."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.runtime.files import complete_file, write_whole


@contextmanager
def no_room() -> Iterator[None]:
    """Files may have at most 1,000 bytes: a longer write fails as on a full disk, with an error without a name."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_without_room_the_error_names_the_file_and_the_old_one_stays(tmp_path: Path) -> None:
    target = tmp_path / "labels"
    target.write_bytes(b"old")
    with pytest.raises(OSError, match="File too large") as whole, no_room():
        write_whole(target, bytes(2000))
    with (
        pytest.raises(OSError, match="File too large") as piecewise,
        no_room(),
        complete_file(tmp_path, "labels") as path,
    ):
        Path(path).write_bytes(bytes(2000))
    assert whole.value.filename == piecewise.value.filename == str(target)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"labels": b"old"}


def test_a_device_is_written_to_and_not_replaced() -> None:
    device = Path("/dev/full")
    if not device.is_char_device():
        pytest.skip("no /dev/full here")
    with pytest.raises(OSError, match="/dev/full"):
        write_whole(device, b"points")
    assert device.is_char_device()
