"""Thousands of damaged bodies in every format: each is read, or refused with an error that the service has words for.

A body is valid at first. Then a few of its bytes are flipped, cut out, repeated or replaced, or a part of another body
is put in. What is read must be a checked batch: finite, of the shape that it says, with a field for each row. The
number of a case replays it.
"""

import json
import random

import numpy as np
import pytest
from scipy.sparse import random_array
from wire_bodies import (
    ARROW,
    JSON,
    LIMITS,
    MSGPACK,
    NDJSON,
    NPY,
    arrow_body,
    csr_body,
    in_columns,
    in_lists,
    json_body,
    msgpack_body,
    ndjson_body,
    npy_body,
    zipped,
)

from shoal.errors import InputError
from shoal_service.errors import RequestError
from shoal_service.wire import Points, decode

ROUNDS = 400
NASTY = (
    b"\x00",
    b"\xff",
    b"\x80",
    b"[" * 40,
    b'{"a":' * 40,
    b"1e999",
    b"-0",
    b"NaN",
    b"null",
    b'"',
    b",",
    b"\xc1",
    b"\xdf",
)


def fields(n: int) -> dict[str, object]:
    """Record fields in JSON."""
    return {
        "keys": [f"k{i}" for i in range(n)],
        "times": [1.7e9 + i for i in range(n)],
        "payloads": [{"i": i, "t": "ü"} for i in range(n)],
        "weights": [1.0 + i for i in range(n)],
    }


def seeds() -> dict[str, tuple[str, list[bytes]]]:
    """Valid bodies of each format, by name."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(6, 3))
    sparse = random_array((5, 20), density=0.2, rng=rng, format="csr")
    rows = [{"point": row, "key": f"k{i}", "payload": {"a": 1}} for i, row in enumerate(x.tolist())]
    named = {"points": x.tolist(), "feature_names": ["a", "b", "c"]}
    objects = [{"a": a, "b": b, "values": c} for a, b, c in x.tolist()]
    plain = json.dumps({"points": x.tolist()} | fields(6)).encode()
    return {
        "json": (JSON, [plain, json.dumps(named).encode(), json_body(objects)]),
        "ndjson": (NDJSON, [ndjson_body(rows), ndjson_body(x.tolist()), ndjson_body(objects)]),
        "msgpack": (MSGPACK, [msgpack_body(x), msgpack_body(x, k=[f"k{i}" for i in range(6)]), csr_body(sparse)]),
        "npy": (NPY, [npy_body(x), npy_body(x.astype(np.float32), version=(2, 0))]),
        "arrow": (ARROW, [arrow_body(in_lists(x)), arrow_body(in_columns(*x.T))]),
    }


def damaged(body: bytes, other: bytes, rng: random.Random) -> bytes:
    """The body with one to four faults."""
    out = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice((1, 2, 4, 8, 40)))
        match rng.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                del out[at:end]
            case 2:
                out[at:at] = out[at:end] * rng.choice((1, 3, 50))
            case 3:
                out[at:end] = rng.choice(NASTY)
            case 4:
                start = rng.randrange(len(other))
                out[at:end] = other[start : start + rng.randint(1, 60)]
            case _:
                del out[at:]
    return bytes(out)


def check(points: Points) -> None:
    """What was read is a checked batch."""
    values = points.x.data if points.is_sparse else points.x
    assert points.n_points >= 1
    assert 1 <= points.n_features <= LIMITS.max_features
    assert np.isfinite(values).all()
    if points.names is not None:
        assert len(set(points.names)) == points.n_features
        assert all(1 <= len(name) <= 200 for name in points.names)
    if points.fields is not None:
        keys, times, payloads = points.fields.keys, points.fields.times, points.fields.payloads
        for values in (keys, times, payloads, points.fields.weights):
            assert values is None or len(values) == points.n_points
        assert all(len(key) <= 256 for key in keys or [])
        assert all(isinstance(json.loads(payload), dict) for payload in payloads or [] if payload)


@pytest.mark.parametrize("zip_it", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", sorted(seeds()))
def test_a_damaged_body_is_read_or_refused(name: str, zip_it: bool) -> None:
    content_type, bodies = seeds()[name]
    read, reasons = 0, list[str]()
    for case in range(ROUNDS):
        rng = random.Random(f"{name} {zip_it} {case}")
        body, other = rng.choice(bodies), rng.choice(bodies)
        # half of the compressed bodies are damaged before they are compressed, so that what is inside is reached
        inside = zip_it and case % 2 == 0
        broken = zipped(damaged(body, other, rng)) if inside else damaged(zipped(body) if zip_it else body, other, rng)
        try:
            points = decode(broken, content_type, LIMITS, content_encoding="gzip" if zip_it else None)
        except (InputError, RequestError) as error:
            reasons.append(str(error))
            continue
        except Exception as error:
            raise AssertionError(f"case {case} of {name}: {type(error).__name__}: {error}; body {broken!r}") from error
        read += 1
        check(points)
    assert all(reasons)
    assert len(reasons) > ROUNDS // 4  # the faults are faults
    assert read > 0  # and not so many that nothing is reached
