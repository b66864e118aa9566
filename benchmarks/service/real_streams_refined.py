"""Real streams through the running service, before and after refinement, and batch VDP on the same vectors.

    SHOAL_DATA=DIR python benchmarks/service/real_streams_refined.py [--only mnist] [--points N] [--out FILE.csv]

Each stream is posted in batches of 1,000, in the order of its file, to its own `shoal serve` over a temporary folder.
This happens twice: with refinement off (`one pass`), and with the defaults until no refinement is open (`refined`).
`DPMixture(method="vdp")` fits the same points at once under the prior `auto` (`batch vdp`). Labels are never shown. The
held-out log density is that of other rows, in nats per row. `seconds` is the wall time from the first batch to the end.
`refining_s` is the part of it that refinements took in their own process.
"""

import argparse
import csv
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from harness.running_service import RunningService
from shoal import DPMixture
from shoal_service.client import Client

BATCH = 1_000


class Stream(NamedTuple):
    name: str
    family: str
    points: np.ndarray
    labels: np.ndarray | None
    held_out: np.ndarray | None


def streams(folder: Path, n: int | None) -> Iterator[Stream]:
    """Load the streams, at most n points of each."""
    with np.load(folder / "mnist_pca50.npz") as z:
        yield Stream("mnist", "gaussian", z["X_train"][:n], z["y_train"][:n], z["X_test"])
    with np.load(folder / "loghub_embed.npz") as z:  # labels: the templates of the lines, of which there are 485
        yield Stream("log lines", "diagonal", z["X"][:n], z["y"][:n], None)
    with np.load(folder / "flow_facscalibur.npz") as z:
        kept = [i for i, name in enumerate(z["names"]) if name not in ("FL1-A", "Time")]
        yield Stream("cytometry", "gaussian", z["X"][:n, kept].astype(np.float64), None, None)
    with np.load(folder / "elec2_stream.npz") as z:
        yield Stream("electricity", "diagonal", z["X"][:n], z["y"][:n], None)


def settle(service: RunningService, name: str) -> list[dict[str, Any]]:
    """Wait until no refinement of the stream is open and none follows immediately."""
    quiet = 0
    while quiet < 3:
        found = list(httpx.get(f"{service.url}/streams/{name}/refinements", timeout=60.0).json()["refinements"])
        quiet = 0 if any(one["adopted"] is None for one in found) else quiet + 1
        time.sleep(0.5)
    return found


def through_service(stream: Stream, refinement: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        service = RunningService(Path(folder) / "data", forked=False)
        service.start(timeout_s=600)
        try:
            with Client(service.url, stream="s", deadline_s=600.0) as client:
                client.create_stream(
                    "s", n_features=stream.points.shape[1], family=stream.family, refinement=refinement
                )
                began = time.perf_counter()
                result = client.ingest(stream.points, batch_size=BATCH)
                client.wait(result.log_offset, timeout_s=3600)
                made = settle(service, "s") if refinement else []
                seconds = time.perf_counter() - began
                found = client.predict(stream.points).components
                held_out = None if stream.held_out is None else client.predict(stream.held_out).log_density
                n_components = len(client.components())
        finally:
            service.kill()
    return row(
        stream, "refined" if refinement else "one pass", n_components, found, held_out, seconds,
        refinements=len(made), adopted=sum(bool(one["adopted"]) for one in made),
        refining_s=round(sum(one["seconds"] or 0.0 for one in made), 1),
    )  # fmt: skip


def batch(stream: Stream) -> dict[str, Any]:
    began = time.perf_counter()
    model = DPMixture(family=stream.family, method="vdp", random_state=0).fit(stream.points)
    seconds = time.perf_counter() - began
    held_out = None if stream.held_out is None else model.score_samples(stream.held_out)
    return row(stream, "batch vdp", len(np.unique(model.labels_)), model.labels_, held_out, seconds)


def row(
    stream: Stream, how: str, n_components: int, found: np.ndarray, held_out: np.ndarray | None, seconds: float,
    *, refinements: int = 0, adopted: int = 0, refining_s: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    labels = stream.labels
    return {
        "stream": stream.name,
        "family": stream.family,
        "points": len(stream.points),
        "features": stream.points.shape[1],
        "how": how,
        "components": n_components,
        "nmi": "" if labels is None else round(float(normalized_mutual_info_score(labels, found)), 3),
        "ari": "" if labels is None else round(float(adjusted_rand_score(labels, found)), 3),
        "held_out_log_density": "" if held_out is None else round(float(held_out.mean()), 3),
        "seconds": round(seconds, 1),
        "refinements": refinements,
        "adopted": adopted,
        "refining_s": refining_s,
        "load_average_1_min": round(os.getloadavg()[0], 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one BLAS thread a process",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--points", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/real_streams_refined.csv"))
    arguments = parser.parse_args()
    folder = os.environ.get("SHOAL_DATA")
    if not folder:
        raise SystemExit("set SHOAL_DATA to the folder of real data sets")
    rows: list[dict[str, Any]] = []
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for stream in streams(Path(folder), arguments.points):
        if arguments.only is not None and stream.name not in arguments.only:
            continue
        for take in (lambda s: through_service(s, None), lambda s: through_service(s, "auto"), batch):
            rows.append(take(stream))
            print(rows[-1], flush=True)
            with arguments.out.open(
                "w", newline=""
            ) as out:  # written after each stream, so that an interrupted run leaves its rows
                writer = csv.DictWriter(out, fieldnames=list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
