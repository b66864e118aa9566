"""Quality through the running service with its defaults, on nine overlapping Gaussians.

    python benchmarks/service/quality_through_service.py [--seeds 20] [--points 20000] [--out FILE.csv]

The script starts one `shoal serve` over a temporary folder. Each spacing, family and seed has its own stream, posted in
batches of 1,000 as fast as they are accepted. Only the family is set. When all points are learned and no refinement is
open, the script asks for 20,000 fresh points over HTTP. `ceiling` is the adjusted Rand index of the true model. The
number of refinements before the last point and their offsets (`refined_at`) depend on the speed of the machine.
"""

import argparse
import csv
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sklearn.metrics import adjusted_rand_score

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))
from stream_workloads import grid

from harness.running_service import RunningService
from shoal_service.client import Client

BATCH, N_TEST = 1_000, 20_000
SPACINGS, FAMILIES = (4.0, 5.0), ("gaussian", "diagonal")


def settled(service: RunningService, name: str) -> list[dict[str, Any]]:
    """Return the stream's refinements after three checks in a row have found none open."""
    quiet = 0
    while quiet < 3:
        found = list(httpx.get(f"{service.url}/streams/{name}/refinements", timeout=60.0).json()["refinements"])
        quiet = 0 if any(one["adopted"] is None for one in found) else quiet + 1
        time.sleep(0.4)
    return found


def measured(service: RunningService, spacing: float, family: str, seed: int, n: int) -> dict[str, Any]:
    rng, truth = np.random.default_rng([seed, int(spacing)]), grid(spacing)
    x, _ = truth.draw(n, rng)
    test, z = truth.draw(N_TEST, rng)
    name = f"{family}-{spacing:g}-{seed}"
    with Client(service.url, stream=name, deadline_s=600.0) as client:
        client.create_stream(name, n_features=2, family=family)
        began = time.perf_counter()
        result = client.ingest(x, batch_size=BATCH)
        client.wait(result.log_offset, timeout_s=600)
        made = settled(service, name)
        seconds = time.perf_counter() - began
        found = client.predict(test).components
        components = len(client.components())
        client.delete_stream(name)
    return {
        "spacing": spacing,
        "family": family,
        "seed": seed,
        "points": n,
        "components": components,
        "ari": round(float(adjusted_rand_score(z, found)), 5),
        "ceiling": round(float(adjusted_rand_score(z, truth.log_joint(test).argmax(axis=1))), 5),
        "refined_at": " ".join(str(one["points_seen"]) for one in reversed(made)),
        "adopted": sum(bool(one["adopted"]) for one in made),
        "seconds": round(seconds, 1),
        "load_average_1_min": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/quality_through_service.csv"))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        service = RunningService(Path(folder) / "data", forked=False)
        service.start(timeout_s=600)
        try:
            for seed in range(arguments.seeds):
                for spacing in SPACINGS:
                    for family in FAMILIES:
                        rows.append(measured(service, spacing, family, seed, arguments.points))
                        print(rows[-1], flush=True)
        finally:
            service.kill()
            if rows:
                with arguments.out.open("w", newline="") as out:
                    writer = csv.DictWriter(out, fieldnames=list(rows[0]))
                    writer.writeheader()
                    writer.writerows(rows)
    good = [row["components"] == 9 and row["ceiling"] - row["ari"] <= 0.01 for row in rows]
    print(f"{sum(good)} of {len(good)} runs found nine components, and an index within .01 of the ceiling")


if __name__ == "__main__":
    main()
