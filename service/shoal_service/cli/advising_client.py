"""The client of commands, which says by commands what to do about a stream that does not exist."""

import re
from types import TracebackType

from shoal.errors import did_you_mean
from shoal_service.client import Client, NotFoundError, ShoalClientError

_NO_STREAM = re.compile(r"there is no stream '([^']*)'")


class AdvisingClient(Client):
    """A client whose error about an unknown stream names the one that was probably meant, and commands."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        found = _NO_STREAM.search(str(error)) if isinstance(error, NotFoundError) else None
        if error is not None and found is not None:
            try:
                advice = did_you_mean(found[1], [known.stream for known in self.streams()])
            except ShoalClientError:  # no key to list them, or no server any more
                advice = ""
            known_by = "`shoal streams list` shows their names, `shoal ingest --create` makes a new one"
            error.args = (f"{found[0]}; {advice}{known_by}",)
        super().__exit__(kind, error, at)
