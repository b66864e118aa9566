"""The real data sets of `every_engine.py`: rows to learn, rows held out, their labels, and one prior."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from record import data_file
from scipy.sparse import csr_array

from shoal.estimators.batch_fit import place_prior
from shoal.families import DirichletMultinomial
from shoal.points.rows import SparseRows


class RealSet(NamedTuple):
    """Points in the prior's coordinates."""

    x: Any  # (N, D) to learn
    test: Any  # (M, D) held out
    y: np.ndarray | None  # (M,) labels of the held-out rows
    n_classes: int  # in the whole set; 0 without labels
    prior: Any
    log_volume: float  # of the scaling: what is taken from a log density in these coordinates

    @property
    def located(self) -> bool:
        """Whether points are real numbers."""
        return bool(self.prior.domain.located)

    def head(self, n: int) -> "RealSet":
        return self._replace(x=self.x[:n], test=self.test[:10], y=None if self.y is None else self.y[:10])


def read(name: str) -> dict[str, np.ndarray]:
    with np.load(data_file(f"{name}.npz"), allow_pickle=False) as data:
        return dict(data)


def counts(data: dict[str, np.ndarray], prefix: str = "") -> SparseRows:
    parts = (data[prefix + "data"].astype(float), data[prefix + "indices"].astype(np.int32), data[prefix + "indptr"])
    return SparseRows.of(csr_array(parts, shape=tuple(data[prefix + "shape"])))


def made(
    family: Any, x: Any, y: Any, rows: int | None, held_out: int, seed: int, own_test: tuple[Any, Any] | None = None
) -> RealSet:
    """Return a set in random order: `held_out` rows (at most a fifth), and at most `rows` of the others to learn."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(x.shape[0])
    test, test_y = (None, None) if own_test is None else own_test
    if test is None:
        cut = min(held_out, len(order) // 5)
        test, test_y, order = x[order[:cut]], None if y is None else y[order[:cut]], order[cut:]
    else:
        test, test_y = test[:held_out], None if test_y is None else test_y[:held_out]
    x = x[order[:rows]]
    if not isinstance(family, str):
        return RealSet(x, test, test_y, 0 if y is None else len(np.unique(y)), family, 0.0)
    placed = place_prior(family, x, 1.0, rng)
    scaled = (placed.standardise(x), placed.standardise(test))
    return RealSet(*scaled, test_y, 0 if y is None else len(np.unique(y)), placed.prior, placed.log_volume)


def galaxy(*size: Any) -> RealSet:
    return made("gaussian", read("galaxy")["velocity_km_s"][:, None] / 1_000.0, None, *size)


def old_faithful(*size: Any) -> RealSet:
    return made("gaussian", read("old_faithful")["X"], None, *size)


def flow(*size: Any) -> RealSet:
    """Load the set without FL1-A and time, and without events at the limit of the instrument."""
    x = read("flow_facscalibur")["X"][:, [0, 1, 2, 3, 4, 6]].astype(float)
    return made("gaussian", x[(x < 1_023).all(axis=1)], None, *size)


def elec2(*size: Any) -> RealSet:
    data = read("elec2_stream")
    return made("gaussian", data["X"].astype(float), data["y"], *size)


def outdoor(*size: Any) -> RealSet:
    """Load histograms that sum to one. A full covariance would be singular, so the family is `diagonal`."""
    data = read("outdoor_stream")
    return made("diagonal", data["X"].astype(float), data["y"], *size)


def mnist(*size: Any) -> RealSet:
    data = read("mnist_pca50")
    test = (data["X_test"].astype(float), data["y_test"])
    return made("gaussian", data["X_train"].astype(float), data["y_train"], *size, own_test=test)


def loghub(*size: Any) -> RealSet:
    data = read("loghub_embed")
    return made("diagonal", data["X"].astype(float), data["y"], *size)


def loghub_directions(*size: Any) -> RealSet:
    """Load the embeddings as unit vectors, without lines that have no known word."""
    data = read("loghub_embed")
    x = data["X"].astype(float)
    length = np.linalg.norm(x, axis=1)
    kept = length > 0.0
    return made("von_mises_fisher", x[kept] / length[kept, None], data["y"][kept], *size)


def m10(*size: Any) -> RealSet:
    data = read("m10_bow")
    return made("multinomial", counts(data), data["y"], *size)


def news_t(*size: Any) -> RealSet:
    data = read("news_t_stream")
    return made("multinomial", counts(data), data["y"], *size)


def nips(*size: Any) -> RealSet:
    """Load the 1,000 terms of greatest weight (count times log inverse share of papers), ten pseudo-counts each."""
    data = read("nips_bow")
    x, test = counts(data, "train_"), counts(data, "test_")
    used = np.asarray((x > 0).sum(axis=0)).ravel()
    weight = np.asarray(x.sum(axis=0)).ravel() * np.log(x.shape[0] / used.clip(1))
    chosen = np.sort(np.argsort(-weight)[:1_000])
    x, test = SparseRows.of(x[:, chosen]), SparseRows.of(test[:, chosen])
    return made(DirichletMultinomial(np.full(1_000, 10.0)), x, None, *size, own_test=(test, None))


def topics(*size: Any) -> RealSet:
    data = read("nips_lda50")
    return made(
        "dirichlet", data["theta"].astype(float), None, *size, own_test=(data["theta_test"].astype(float), None)
    )


SETS: dict[str, Callable[..., RealSet]] = {
    function.__name__: function
    for function in (
        *(galaxy, old_faithful, flow, elec2, outdoor, mnist, loghub, loghub_directions),
        *(m10, news_t, nips, topics),
    )
}
