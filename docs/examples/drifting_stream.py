"""A stream whose clusters move, begin and end, as NDJSON on standard output.

    python docs/examples/drifting_stream.py --points 20000 > drift.ndjson
    python docs/examples/drifting_stream.py --points 20000 --labels drift-labels.npy > drift.ndjson

Eight clusters lie in the plane, each a unit Gaussian. Each moves along its own straight line. Three times, the oldest
cluster ends and another begins elsewhere. The same seed gives the same stream.
"""

import argparse
import sys

import numpy as np

CLUSTERS = 8


def stream(n_points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw points (N, 2) in order of arrival, and the true cluster (N,) of each."""
    rng = np.random.default_rng(seed)
    side = np.arange(-1, 2) * 10.0
    grid = np.array([(x, y) for x in side for y in side])
    starts = np.concatenate([grid[:CLUSTERS], grid[CLUSTERS:], grid[:2]]) + rng.normal(
        scale=1.0, size=(CLUSTERS + 3, 2)
    )
    velocities = rng.normal(scale=2.0, size=starts.shape) / n_points
    time = np.arange(n_points)
    era = time * 4 // n_points  # three changes divide the stream into four eras
    label = era + rng.integers(CLUSTERS, size=n_points)
    centres = starts[label] + velocities[label] * time[:, None]
    return centres + rng.normal(size=(n_points, 2)), label


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--labels", help="file for the true clusters, as .npy")
    arguments = parser.parse_args()
    points, labels = stream(arguments.points, arguments.seed)
    if arguments.labels:
        np.save(arguments.labels, labels)
    sys.stdout.writelines(f"[{x:.4f}, {y:.4f}]\n" for x, y in points)


if __name__ == "__main__":
    main()
