"""Where states and windows are handed to the refining child."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


class Scratch:
    """A folder for its owner alone, emptied when it is first used and removed at the end."""

    def __init__(self, place: Path | None) -> None:
        """`place`: a path that this process owns; None takes one where the system keeps what is temporary."""
        self._place = place
        self._root: Path | None = None

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder, gone with the block."""
        with tempfile.TemporaryDirectory(dir=self._opened(), ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def _opened(self) -> Path:
        if self._root is None:
            if self._place is None:
                self._root = Path(tempfile.mkdtemp(prefix="shoal-refining-"))
            else:
                shutil.rmtree(self._place, ignore_errors=True)  # what a process left that was killed
                self._place.mkdir(mode=0o700, parents=True)
                self._root = self._place
        return self._root

    def close(self) -> None:
        """Remove everything."""
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
