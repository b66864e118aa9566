"""Dead letters of a data folder, read without opening it as a store."""

from pathlib import Path

from shoal_service.store import rules
from shoal_service.store.contract import DeadLetter
from shoal_service.store.sqlite import records, stream_state
from shoal_service.store.sqlite.read_only import one_commit, open_read_only


def dead_letters_at_rest(folder: Path, stream: str) -> list[DeadLetter]:
    """Return the dead letters of a stream, oldest first. The folder may be in use, and nothing in it changes.

    Raises UnknownStreamError, LogGapError when one is damaged, and as `open_read_only`.
    """
    with open_read_only(folder) as (db, _, _), one_commit(db):
        state = stream_state.StreamTable(stream_state.load(db)).of_name(stream)
        if state is None:
            raise rules.unknown(stream)
        return records.dead_letters(db, state)
