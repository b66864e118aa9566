"""Stores that earlier versions wrote, kept under `tests/data/stores`, and the points that are in them."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.redis_server import RedisServer

FOLDER = Path(__file__).resolve().parents[1] / "data" / "stores"
STEP = 100
STREAMS: dict[str, dict[str, Any]] = {
    "plane": {"n_features": 2, "warmup_points": 200, "window": 600, "refinement": None},
    "axes": {"n_features": 3, "family": "diagonal", "warmup_points": 100, "window": 0, "refinement": None},
    "counts": {"n_features": 4, "family": "poisson", "warmup_points": 100, "refinement": None},
}
N_POINTS = {"plane": 1_600, "axes": 700, "counts": 700}


def points(stream: str, n: int | None = None, seed: int = 0) -> np.ndarray:
    """(n, D) points of a stream, the same at each call. Real numbers lie on a grid of sixteenths: they pack well."""
    rng = np.random.default_rng([sorted(STREAMS).index(stream), seed])
    n, d = N_POINTS[stream] if n is None else n, STREAMS[stream]["n_features"]
    if stream == "counts":
        rates = np.array([[1.0, 9.0, 2.0, 6.0], [12.0, 1.0, 5.0, 0.5], [3.0, 3.0, 14.0, 3.0]])
        return rng.poisson(rates[rng.integers(3, size=n)]).astype(float)
    centres = 4.0 * np.stack(np.meshgrid(*[np.arange(3)] * d), axis=-1).reshape(-1, d)[:9]
    return np.asarray(np.round(16.0 * (centres[rng.integers(9, size=n)] + rng.normal(size=(n, d)))) / 16.0)


def batches(stream: str) -> Iterator[tuple[str, np.ndarray]]:
    """Idempotency key and points (STEP, D) of each batch of a stream."""
    x = points(stream)
    for start in range(0, len(x), STEP):
        yield f"{stream}-{start}", x[start : start + STEP]


def body_of(x: np.ndarray) -> bytes:
    """The body of a batch, of type `application/json`."""
    return json.dumps({"points": x.tolist()}).encode()


def versions() -> list[str]:
    """The versions whose stores are kept."""
    return sorted(path.parent.name for path in FOLDER.glob("*/contents.json"))


def contents(version: str) -> dict[str, Any]:
    """What the writer found in the stores of a version, by backend and stream, and the time of writing."""
    found: dict[str, Any] = json.loads((FOLDER / version / "contents.json").read_text(encoding="utf-8"))
    return found


def files(version: str, archive: str) -> dict[str, bytes]:
    """The files of an archive (`sqlite`, `redis` or `models`) by name."""
    with tarfile.open(FOLDER / version / f"{archive}.tar.xz") as tar:
        return {member.name: reader.read() for member in tar if (reader := tar.extractfile(member)) is not None}


def unpack_folder(version: str, target: Path) -> Path:
    """The data folder of a version, written into `target`."""
    target.mkdir(parents=True)
    for name, data in files(version, "sqlite").items():
        (target / name).write_bytes(data)
    return target


def load_keys(version: str, server: RedisServer, prefix: str) -> None:
    """Write the keys of a version into a server, under another prefix."""
    with server.client() as client:
        for name, payload in files(version, "redis").items():
            client.restore(name.replace("shoal:", f"{prefix}:", 1), 0, payload)
