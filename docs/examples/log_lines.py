"""Points from lines of text: `python log_lines.py < app.log > lines.ndjson`, or with `write` an example of such a log.

Each line becomes the set of its words, as ones among 256 zeros: a hash says which feature a word is. Numbers, addresses
and ids vary from line to line and are left out. A line of the output is a record: the point as a sparse row, the number
of the line as the key, and the line itself as the payload.
"""

import json
import random
import re
import sys
import zlib

FEATURES = 256
VARIES = re.compile(r"\S*\d\S*|/\S+")
"""Words with a digit, and paths."""
KINDS = {
    "accepted connection from 10.0.{n}.{m} port {p}": 0.35,
    "session {p} opened for user {user}": 0.2,
    "session {p} closed for user {user} after {n} s": 0.2,
    "cache miss for key /items/{p}, reading from disk": 0.15,
    "slow query took {p} ms on table orders": 0.06,
    "worker {n} restarted by supervisor": 0.04,
}
FAILURE = "disk sd{m} reports unrecoverable read error at sector {p}"
USERS = ["anna", "bert", "carla", "dinesh", "eva", "farid"]


def features(line: str) -> list[int]:
    """Features that are one, in ascending order."""
    words = re.findall(r"[a-z]+", VARIES.sub(" ", line.lower()))
    return sorted({zlib.crc32(word.encode()) % FEATURES for word in words})


def write(draw: random.Random) -> None:
    """Write 4,000 lines. Another kind of line begins in the last tenth."""
    for i in range(4_000):
        (kind,) = draw.choices(list(KINDS), list(KINDS.values()))
        if i >= 3_600 and i % 5 == 0:
            kind = FAILURE
        print(
            kind.format(n=draw.randrange(250), m=draw.randrange(8), p=draw.randrange(60_000), user=draw.choice(USERS))
        )


def main() -> None:
    """Write a log, or the points of one."""
    if sys.argv[1:] == ["write"]:
        write(random.Random(0))
        return
    for number, line in enumerate(sys.stdin, 1):
        found = features(line)
        point = {"indices": found, "values": [1] * len(found)}
        print(json.dumps({"point": point, "key": f"line-{number}", "payload": {"line": line.rstrip()}}))


if __name__ == "__main__":
    main()
