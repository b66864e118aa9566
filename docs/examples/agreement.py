"""Agreement of a stream's components with labels that the stream never saw.

    python docs/examples/agreement.py POINTS.npy|.ndjson LABELS.npy [STREAM]

The script reads points and labels and asks the running server for each point's component. It prints the adjusted Rand
index: 1 means the same partition, and 0 means no better than chance.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from shoal_service.client import Client


def read(path: str) -> np.ndarray:
    """Return the table of a .npy file, or of a file with one JSON array per line."""
    if path.endswith(".npy"):
        return np.load(path)
    return np.array([json.loads(line) for line in Path(path).read_text().splitlines()])


if __name__ == "__main__":
    points, labels = read(sys.argv[1]), np.load(sys.argv[2])
    stream = sys.argv[3] if len(sys.argv) > 3 else None
    with Client(os.environ.get("SHOAL_URL", "http://127.0.0.1:8000"), stream=stream) as client:
        found = client.predict(points).components
    print(f"{np.unique(found).size} components, adjusted Rand index {adjusted_rand_score(labels, found):.3f}")
