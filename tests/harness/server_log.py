"""What a server says in its log."""

import re
from pathlib import Path

from harness.waiting import eventually


def listening_at(log: Path) -> str:
    """The address that a server says it listens on, once it says so."""

    def text() -> str:
        return log.read_text() if log.exists() else ""

    found = eventually(lambda: re.search(r"^shoal listens on (\S+)", text(), re.MULTILINE), text)
    return found[1]
