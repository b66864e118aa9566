"""A log of a web server, written to standard output: `python web_log.py [--incident]`.

Each line has a time, an id, a method, a path, a status, the bytes that were sent and the milliseconds that it took.
With --incident it is a later hour, in which a part of the requests time out.
"""

import random
import sys
from datetime import UTC, datetime, timedelta

KINDS = {
    # path: share, milliseconds, bytes; both are log-normal about these
    "/static/app-{n}.js": (0.5, 2.0, 20_000.0),
    "/api/items/{n}": (0.3, 40.0, 900.0),
    "/search?q={n}": (0.15, 400.0, 6_000.0),
    "/download/{n}.zip": (0.05, 2_500.0, 5_000_000.0),
}
TIMEOUT = (30_000.0, 150.0)


def main() -> None:
    """Write the lines."""
    incident = "--incident" in sys.argv[1:]
    draw = random.Random(2 if incident else 1)
    at = datetime(2026, 1, 31, 13 if incident else 12, tzinfo=UTC)
    for i in range(300 if incident else 3_000):
        at += timedelta(seconds=draw.expovariate(1.0))
        (path,) = draw.choices(list(KINDS), [share for share, _, _ in KINDS.values()])
        _, ms, size = KINDS[path]
        status = 200
        if (incident and i >= 100 and path.startswith("/search")) or (incident and i == 299):
            (ms, size), status = TIMEOUT, 504
        ms, size = ms * draw.lognormvariate(0.0, 0.25), size * draw.lognormvariate(0.0, 0.25)
        name = f"{'b' if incident else 'a'}{i}"
        print(f"{at:%Y-%m-%dT%H:%M:%SZ} {name} GET {path.format(n=draw.randrange(50))} {status} {size:.0f} {ms:.1f}")


if __name__ == "__main__":
    main()
