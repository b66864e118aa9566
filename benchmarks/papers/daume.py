"""Daume (2007): search for the most probable partition, against Gibbs sampling and split-merge.

    SHOAL_DATA=FOLDER python benchmarks/papers/daume.py [--quick] [--what small mnist orders nips]

`small` (figure 2): 4 to 50 points, five sets for each number. Points are documents of 20 words over ten terms, from a
Dirichlet process mixture with concentration 1 and one pseudo-count per term. Search runs with each score and a beam of
100, and without a beam for 8 points and fewer. Gibbs and split-merge make 1,000 sweeps and give the best partition
found. `gap` is the log joint of the best partition that any method found on that set, minus this one's. `certain` says
that the partition is the most probable one. With an admissible or trivial score and a beam, the search stops at 2,000
hypotheses and ends greedily (`limit`). Scores, bounds and the objective are the corrected ones, not those printed.

`mnist`: 5, 20 and 100 % of 60,000 digits in 50 principal components, each divided by its standard deviation
(spherised), concentration 1. The paper says only that the prior's variance is .1. This has two readings: Gaussians of
variance .1 with means of variance .9 ("within"), and Gaussians of variance .9 with means of variance .1 ("between").
`f` is the harmonic mean of precision and recall of pairs of the same digit; the paper's text says geometric.

`orders` (section 4.3): points by increasing and by decreasing density under the prior, and in ten random orders, on 5 %
of the digits and on the documents of `nips`.

`nips`: word counts of 1,350 papers, the 1,000 terms of greatest weight (total count times log inverse share of papers
with the term), ten pseudo-counts per term, concentration 1. The words of a cluster are those whose share most exceeds
their share in the corpus, weighted by that share. The paper used another extract of the same conference. So clusters
can be compared in kind, and numbers cannot.
"""

import itertools
from math import inf
from typing import Any

import numpy as np
import scipy.sparse
from record import Table, by_size, data_file, floats, options, path_of, plot, timed
from sklearn.metrics import normalized_mutual_info_score
from sklearn.metrics.cluster import pair_confusion_matrix

from shoal import DPMixture
from shoal.families import DirichletMultinomial, KnownCovariance

WHAT = ("small", "orders", "nips", "mnist")
SIZES = (4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 40, 50)
SEARCHES = ("inadmissible", "admissible", "trivial")
CERTAIN_UP_TO, LIMIT = 8, 2_000
READINGS = {"between": (0.1, 0.9), "within": (0.9, 0.1)}
"""Variance of the means, variance about them."""


# Figure 2


def documents(n: int, seed: int) -> np.ndarray:
    """Draw n documents of 20 words over ten terms."""
    rng = np.random.default_rng([seed, n])
    labels: list[int] = []
    for i in range(n):
        new = rng.random() * (i + 1.0) < 1.0
        labels.append(max(labels, default=-1) + 1 if new else labels[rng.integers(i)])
    theta = rng.dirichlet(np.ones(10), size=max(labels) + 1)
    return np.array([rng.multinomial(20, theta[k]) for k in labels], dtype=float)


def small(arguments: Any) -> None:
    columns = ["points", "set", "method", "log_joint", "gap", "components", "cpu_s", "expanded", "certain", "limit"]
    table = Table(path_of(arguments, "daume_small", ".csv"), columns, ("points", "set", "method"))
    sizes, n_sets = by_size(arguments, (SIZES, 5), ((4, 8, 12, 20), 2), ((4, 8), 1))
    prior = DirichletMultinomial(np.ones(10))
    contenders: dict[str, dict[str, Any]] = {}
    for score in SEARCHES:
        limit = None if score == "inadmissible" else LIMIT
        contenders[f"{score}, beam 100"] = {"method": "search", "search_score": score, "beam": 100, "max_iter": limit}
    for score in SEARCHES[1:]:
        contenders[f"{score}, no beam"] = {"method": "search", "search_score": score, "beam": inf}
    for sampler in ("gibbs", "split-merge"):
        contenders[sampler] = {"method": sampler, "n_samples": 1_000, "burn_in": 0}
    for name in contenders:  # compile first: no time counts it
        DPMixture(prior, random_state=0, **contenders[name]).fit(documents(4, 1_000))
    for seed, n in itertools.product(range(n_sets), sizes):
        x, rows = documents(n, arguments.seed + seed), []
        for name, settings in contenders.items():
            if name.endswith("no beam") and n > CERTAIN_UP_TO:
                continue
            model = DPMixture(prior, random_state=seed, **settings)
            seconds = timed(lambda model=model, x=x: model.fit(x))[1]
            rows.append((name, model, seconds))
        best = max(model.elbo_ for _, model, _ in rows)
        for name, model, seconds in rows:
            searched = model.method == "search"
            table.add(
                points=n,
                set=seed,
                method=name,
                log_joint=float(model.elbo_),
                gap=float(best - model.elbo_),
                components=int(model.labels_.max()) + 1,
                cpu_s=seconds,
                expanded=model.n_iter_ if searched else "",
                certain=name.endswith("no beam"),
                limit=searched and not model.converged_,
            )

    def mean(name: str, column: str) -> tuple[list[int], list[float]]:
        found = [(n, floats(table.where(points=n, method=name), column)) for n in sizes]
        return [n for n, v in found if v], [float(np.mean(v)) for _, v in found if v]

    panels = [
        {"series": {m: mean(m, "gap") for m in contenders}, "x": "points", "y": "nats short of the best found"},
        {"series": {m: mean(m, "cpu_s") for m in contenders}, "x": "points", "y": "CPU seconds", "log": "xy"},
    ]
    plot(path_of(arguments, "daume_small", ".png"), panels, "Daume (2007), figure 2, our documents")


# MNIST


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    with np.load(data_file("mnist_pca50.npz"), allow_pickle=False) as data:
        x = data["X_train"].astype(np.float64) / np.sqrt(data["explained_variance"])
        return x[:n], data["y_train"][:n]


def reading(name: str, n_features: int = 50) -> KnownCovariance:
    return KnownCovariance(np.zeros(n_features), *READINGS[name])


def pair_f(truth: np.ndarray, labels: np.ndarray) -> float:
    """Return the harmonic mean of precision and recall over pairs."""
    (_, wrong), (missed, right) = pair_confusion_matrix(truth, labels)
    return float(2 * right / (2 * right + wrong + missed))


def mnist(arguments: Any) -> None:
    columns = ["reading", "share", "points", "method", "log_joint", "nats_a_point", "components", "largest", "f", "nmi"]
    table = Table(
        path_of(arguments, "daume_mnist", ".csv"), [*columns, "cpu_s", "expanded"], ("reading", "share", "method")
    )
    shares = by_size(arguments, (0.05, 0.2, 1.0), (0.05, 0.2), (0.005,))
    for method in ("search", "gibbs"):  # compile first: no time counts it
        DPMixture(reading("between"), method).fit(digits(50)[0])
    for share, name in itertools.product(shares, READINGS):
        x, y = digits(round(60_000 * share))
        methods = ("search", "gibbs") if share <= 0.05 else ("search",)
        for method in methods:
            settings = {} if method == "search" else {"n_samples": 20, "burn_in": 0}
            model = DPMixture(reading(name), method, random_state=arguments.seed, **settings)
            seconds = timed(lambda model=model, x=x: model.fit(x))[1]
            table.add(
                reading=name,
                share=share,
                points=len(x),
                method=method,
                log_joint=float(model.elbo_),
                nats_a_point=float(model.elbo_ / len(x)),
                components=int(model.labels_.max()) + 1,
                largest=int(np.bincount(model.labels_).max()),
                f=pair_f(y, model.labels_),
                nmi=float(normalized_mutual_info_score(y, model.labels_)),
                cpu_s=seconds,
                expanded=model.n_iter_ if method == "search" else "",
            )
    draw_mnist(arguments, table)


def draw_mnist(arguments: Any, table: Table) -> None:
    panels = []
    for column, words, log in (("cpu_s", "CPU s", "xy"), ("f", "F", "x"), ("components", "clusters", "xy")):
        series = {}
        for name in READINGS:
            rows = sorted(table.where(reading=name, method="search"), key=lambda row: int(row["points"]))
            series[f"search, {name}"] = (floats(rows, "points"), floats(rows, column))
        panels.append({"series": series, "x": "points", "y": words, "log": log})
    plot(path_of(arguments, "daume_mnist", ".png"), panels, "Daume (2007), spherised digits")


# NIPS


def papers(n_terms: int = 1_000) -> tuple[Any, np.ndarray]:
    """Return the counts (N, terms) of the terms of greatest weight, and the terms."""
    with np.load(data_file("nips_bow.npz"), allow_pickle=False) as data:
        parts = (data["train_data"].astype(float), data["train_indices"].astype(np.int32), data["train_indptr"])
        counts = scipy.sparse.csr_array(parts, shape=tuple(data["train_shape"]))
        vocabulary = data["vocab"]
    used = np.asarray((counts > 0).sum(axis=0)).ravel()
    weight = np.asarray(counts.sum(axis=0)).ravel() * np.log(counts.shape[0] / used.clip(1))
    chosen = np.sort(np.argsort(-weight)[:n_terms])
    return counts[:, chosen], vocabulary[chosen]


def nips(arguments: Any) -> None:
    n_terms, n_rows = by_size(arguments, (1_000, 1_350), (1_000, 400), (200, 60))
    counts, terms = papers(n_terms)
    counts = counts[:n_rows]
    prior = DirichletMultinomial(np.full(n_terms, 10.0))
    DPMixture(prior, "search").fit(counts[:5])
    model = DPMixture(prior, "search", random_state=arguments.seed)
    seconds = timed(lambda: model.fit(counts))[1]
    columns = ["cluster", "papers", "words", "log_joint", "cpu_s", "expanded", "clusters"]
    table = Table(path_of(arguments, "daume_nips", ".csv"), columns, ("cluster",))
    whole = np.asarray(counts.sum(axis=0)).ravel() + 1.0
    whole /= whole.sum()
    for k in range(min(int(model.labels_.max()) + 1, 20)):
        mine = np.asarray(counts[model.labels_ == k].sum(axis=0)).ravel()
        share = (mine + 10.0 * whole) / (mine.sum() + 10.0)
        top = terms[np.argsort(-share * np.log(share / whole))[:10]]
        table.add(
            cluster=k,
            papers=int((model.labels_ == k).sum()),
            words=" ".join(top),
            log_joint=float(model.log_joint_),
            cpu_s=seconds,
            expanded=model.n_iter_,
            clusters=int(model.labels_.max()) + 1,
        )


# Section 4.3


def orders(arguments: Any) -> None:
    columns = ["data", "order", "run", "log_joint", "components", "cpu_s", "expanded"]
    table = Table(path_of(arguments, "daume_orders", ".csv"), columns, ("data", "order", "run"))
    n, n_rows, n_runs = by_size(arguments, (3_000, 1_350, 10), (1_000, 300, 3), (200, 50, 1))
    counts = papers()[0][:n_rows]
    sets: dict[str, tuple[Any, Any]] = {f"mnist, {name}": (reading(name), digits(n)[0]) for name in READINGS}
    sets["nips"] = (DirichletMultinomial(np.full(1_000, 10.0)), counts)
    for data, (prior, x) in sets.items():
        DPMixture(prior, "search").fit(x[:5])  # compile first: no time counts it
        runs = [("ascending", 0), ("descending", 0), *(("random", run) for run in range(n_runs))]
        for order, run in runs:
            model = DPMixture(prior, "search", search_order=order, random_state=run)
            seconds = timed(lambda model=model, x=x: model.fit(x))[1]
            table.add(
                data=data,
                order=order,
                run=run,
                log_joint=float(model.log_joint_),
                components=int(model.labels_.max()) + 1,
                cpu_s=seconds,
                expanded=model.n_iter_,
            )
    draw_orders(arguments, table)


def draw_orders(arguments: Any, table: Table) -> None:
    panels = []
    for data in dict.fromkeys(row["data"] for row in table.rows):
        rows = table.where(data=data)
        best = max(floats(rows, "log_joint"))
        series = {data: ([value - best for value in floats(rows, "log_joint")], [row["order"] for row in rows])}
        panels.append({"series": series, "x": "nats above the best order", "y": ""})
    plot(path_of(arguments, "daume_orders", ".png"), panels, "Daume (2007), section 4.3: orders of the points")


def main() -> None:
    arguments = options(__doc__, what=WHAT).parse_args()
    for name, run in (("small", small), ("orders", orders), ("nips", nips), ("mnist", mnist)):
        if name in arguments.what:
            run(arguments)


if __name__ == "__main__":
    main()
