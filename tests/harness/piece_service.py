"""Services that offer pieces whether that pays or not, and can be made to stop in the middle of one."""

from pathlib import Path

from harness.fleet import Fleet
from harness.running_service import RunningService


class PieceService(RunningService):
    """One such process."""

    program = Path(__file__).with_name("piece_process.py")


class PieceFleet(Fleet):
    """Several of them over one server. `hold` is the file that makes them stop."""

    def _one(self, folder: Path, name: str, settings: dict[str, object]) -> RunningService:
        self.hold = folder / "hold"
        service = PieceService(folder / name, settings)
        service.environment["HOLD_PIECES"] = str(self.hold)
        return service
