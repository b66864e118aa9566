"""`shoal serve` that offers pieces whether that pays or not, and can be made to stop in the middle of one.

While the file `HOLD_PIECES` exists, a process that computes a piece for another writes its id to the file with `.pid`
appended, and goes on once the first one is gone.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.fleet import Fleet
from harness.running_service import RunningService


class PieceService(RunningService):
    """One such process."""

    def launch(self) -> None:
        folder = Path(__file__).parents[2]
        path = os.pathsep.join(str(folder / part) for part in ("core", "service", "tests"))
        arguments = [sys.executable, "-m", "harness.piece_service", "serve"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*arguments, "--port", str(self.port), "--data", str(self.data)],
                env={**self.environment, "PYTHONPATH": path, "HOLD_PIECES": str(self.data.parent / "hold")},
                stdout=log,
                stderr=log,
            )


class PieceFleet(Fleet):
    """Several of them over one server."""

    def _one(self, folder: Path, name: str, settings: dict[str, object]) -> RunningService:
        self.hold = folder / "hold"
        return PieceService(folder / name, settings)


def main() -> None:
    """Run the command line."""
    from shoal_service.cli import main as run
    from shoal_service.streams.shared import pieces

    pieces.LEAST_WORK_S, pieces.LEAST_GAIN, pieces.PAUSE_S = -1.0, 0.0, 0.0
    computed, hold = pieces._computed, Path(os.environ["HOLD_PIECES"])

    def held(task: Any) -> bytes:
        if hold.exists():
            hold.with_suffix(".pid").write_text(str(os.getpid()))
        while hold.exists():
            time.sleep(0.01)
        return computed(task)

    pieces._computed = held
    run()


if __name__ == "__main__":
    main()
