"""Anomalies in a stream that changes: a point is one if its log density is low among those of recent points.

    python docs/examples/anomalies.py

Each batch is scored before it is learned. The threshold is the quantile 0.005 of the last 4,000 scores, so that it
follows the stream. In the middle of this stream the noise of the sensors doubles.
"""

from collections import deque

import numpy as np

from shoal import StreamingDPMixture

SHARE, RECENT, BATCH = 0.005, 4_000, 250


def main():
    rng = np.random.default_rng(0)
    centers = rng.normal(0.0, 8.0, (5, 3))
    width = np.repeat([1.0, 2.0], 10_000)[:, None]
    x = centers[rng.integers(5, size=20_000)] + width * rng.normal(size=(20_000, 3))
    planted = rng.random(20_000) < 0.002
    x[planted] = rng.uniform(-60.0, 60.0, (planted.sum(), 3))

    model, scores = StreamingDPMixture(half_life=4_000), deque(maxlen=RECENT)
    flagged = np.zeros(20_000, dtype=bool)
    for start in range(0, 20_000, BATCH):
        batch = slice(start, start + BATCH)
        if start >= 1_000:  # the warm-up is over
            score = model.score_samples(x[batch])
            if scores:
                flagged[batch] = score < np.quantile(scores, SHARE)
            scores.extend(score)
        model.partial_fit(x[batch])

    print("points          flagged  planted  planted and flagged")
    for start in range(2_000, 20_000, 6_000):
        part = slice(start, start + 6_000)
        both = int((flagged & planted)[part].sum())
        print(f"{start:6d}-{start + 6_000:6d} {flagged[part].sum():10d} {planted[part].sum():8d} {both:20d}")


if __name__ == "__main__":
    main()
