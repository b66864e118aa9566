"""Several batch methods on four groups in the plane: components, bound and agreement of each.

python docs/examples/batch.py
"""

import numpy as np
from sklearn.metrics import adjusted_rand_score

from shoal import DPMixture
from shoal.families import NormalInverseWishart


def groups(n_points: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw points (N, 2) of four unit Gaussians, and the group (N,) of each."""
    rng = np.random.default_rng(seed)
    group = rng.integers(4, size=n_points)
    centres = np.array([[0, 0], [7, 0], [0, 7], [7, 7]])
    return centres[group] + rng.normal(size=(n_points, 2)), group


def main() -> None:
    points, group = groups()
    prior = NormalInverseWishart(mean=points.mean(axis=0), mean_strength=0.05, dof=4, scale=np.eye(2))
    print("method    components   bound, nats            agreement")
    for method in ("vdp", "fast-vdp", "tsb", "ctsb", "gibbs"):
        model = DPMixture(prior, method, n_init=1 if method == "gibbs" else 3, random_state=0).fit(points)
        found = model.labels_.max() + 1
        kind = "exact" if model.elbo_is_exact_ else "approximate"
        agreement = adjusted_rand_score(group, model.labels_)
        print(f"{method:<9} {found:>10}   {model.elbo_:>10.2f} {kind:<11} {agreement:>9.3f}")

    model = DPMixture(prior, random_state=0).fit(points)
    new = [[7.2, 0.1], [3.5, 3.5], [40.0, 40.0]]
    print("component of new points:", model.predict(new), "log density:", model.score_samples(new).round(1))


if __name__ == "__main__":
    main()
