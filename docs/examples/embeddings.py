"""Embeddings of hundreds of features: which family finds their topics, and with how many features.

    python docs/examples/embeddings.py

Unit vectors around forty topics in 384 dimensions imitate the output of an embedding model. The variance falls from
direction to direction, in the same way within topics and between them. No feature is one of these directions. The
principal components come from the first 2,000 rows, as they would in a stream.
"""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture

N, D, TOPICS, TEST = 8_000, 384, 40, 4_000
CASES = (
    ("subspace", D, "auto"),
    ("subspace", D, None),
    ("gaussian", 32, "auto"),
    ("gaussian", 32, None),
    ("diagonal", 32, "auto"),
    ("diagonal", 32, None),
    ("von_mises_fisher", D, None),
)


def embeddings(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw unit vectors (N + TEST, D), and the topic of each."""
    directions = np.linalg.qr(rng.normal(size=(D, D)))[0] / np.sqrt(np.arange(1, D + 1))
    topics = rng.choice(TOPICS, size=N + TEST, p=rng.dirichlet(np.ones(TOPICS)))
    centres = rng.normal(size=(TOPICS, D)) @ directions.T
    points = centres[topics] + 0.7 * rng.normal(size=(N + TEST, D)) @ directions.T
    return points / np.linalg.norm(points, axis=1, keepdims=True), topics


def main() -> None:
    points, topics = embeddings(np.random.default_rng(0))
    axes = PCA(32, svd_solver="full").fit(points[:2_000])
    print("family            features  refinement  components  agreement")
    for family, features, refinement in CASES:
        x = points if features == D else axes.transform(points)
        model = StreamingDPMixture(family, refinement=refinement)
        for start in range(0, N, 1_000):
            model.partial_fit(x[start : start + 1_000])
        agreement = adjusted_rand_score(topics[N:], model.predict(x[N:]))
        found = len(model.component_ids_)
        print(f"{family:16}  {features:8}  {refinement or 'none':10}  {found:10}  {agreement:9.3f}")


if __name__ == "__main__":
    main()
