"""Kurihara, Welling and Vlassis (2006), the Citeseer experiment on other documents: clusters of log(1 + topic counts).

    SHOAL_DATA=FOLDER python benchmarks/papers/fast_vdp_topics.py [--quick] [--data nips m10]

The paper has 30,696 abstracts, 200 topics and features log(1 + topic counts), and describes each cluster by its words.
Those abstracts are not available. `nips` is 1,350 papers of a NIPS extract with 50 topics; expected topic counts are
topic proportions times length. `m10` is 8,355 titles of a ten-class subset of CiteSeerX, with 25 topics by
scikit-learn's latent Dirichlet allocation. One number standardizes all features. The prior is normal-inverse-Wishart
with mean 0, mean_strength 0.01, dof D + 2 and scale dof * V * I, V = 0.2 as for the digits; the concentration is 1.
Fast-VDP has its default leaves and ends with 20 rounds on points.

One table has bounds and times. The other, `-words`, describes every cluster of Fast-VDP and of the best VDP by its size
and ten words w. These have the largest p(w | cluster) log p(w | cluster) / p(w). The script takes about two minutes.
"""

from argparse import Namespace

import numpy as np
from record import Table, by_size, data_file, floats, options, path_of, plot, timed
from scipy.sparse import csr_array
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from shoal.families import NormalInverseWishart
from shoal.mixture import BatchFit
from shoal.variational import fit_fast_vdp, fit_vdp

TOPICS = 25
COLUMNS = (
    "data method points topics components cpu_s elbo nats_a_point ratio_to_vdp_paper times_vdp_paper "
    "mutual_information agreement"
)
WORDS = "data method cluster documents class_share words"


class Documents:
    """Features, word counts (documents, words), words, and classes if there are any."""

    def __init__(self, counts: np.ndarray, words: csr_array, vocabulary: np.ndarray, y: np.ndarray | None) -> None:
        z = np.log1p(counts)
        z -= z.mean(axis=0)
        self.x = np.ascontiguousarray(z / np.sqrt(z.var(axis=0).mean()))
        self.words, self.vocabulary, self.y = words, vocabulary, y


def _rows(z: np.lib.npyio.NpzFile, prefix: str = "") -> csr_array:
    data, indices, starts = (z[f"{prefix}{part}"] for part in ("data", "indices", "indptr"))
    return csr_array(
        (data.astype(np.float64), indices.astype(np.int32), starts.astype(np.int32)), shape=tuple(z[f"{prefix}shape"])
    )


def nips(arguments: Namespace) -> Documents:
    with np.load(data_file("nips_bow.npz"), allow_pickle=False) as z:
        words, vocabulary = _rows(z, "train_"), z["vocab"]
    with np.load(data_file("nips_lda50.npz"), allow_pickle=False) as z:
        theta = z["theta"].astype(np.float64)
    keep = slice(by_size(arguments, None, None, 200))
    length = np.asarray(words.sum(axis=1)).ravel()
    return Documents((theta * length[:, None])[keep], words[keep], vocabulary, None)


def m10(arguments: Namespace) -> Documents:
    with np.load(data_file("m10_bow.npz"), allow_pickle=False) as z:
        words, vocabulary, y = _rows(z), z["vocab"], z["y"].astype(np.int64)
    keep = slice(by_size(arguments, None, None, 300))
    words, y = words[keep], y[keep]
    model = LatentDirichletAllocation(
        by_size(arguments, TOPICS, TOPICS, 5),
        doc_topic_prior=0.1,
        topic_word_prior=0.01,
        max_iter=by_size(arguments, 30, 10, 2),
        random_state=0,
    )
    theta = model.fit_transform(words)
    return Documents(theta * np.asarray(words.sum(axis=1)).reshape(-1, 1), words, vocabulary, y)


def top_words(documents: Documents, labels: np.ndarray, cluster: int, at_most: int = 10) -> str:
    everywhere = np.asarray(documents.words.sum(axis=0)).ravel() + 1e-9
    here = np.asarray(documents.words[labels == cluster].sum(axis=0)).ravel()
    p, q = here / max(here.sum(), 1.0), everywhere / everywhere.sum()
    score = p * np.log(np.where(p > 0.0, p, 1.0) / q)
    return " ".join(str(documents.vocabulary[w]) for w in np.argsort(-score)[:at_most] if here[w] > 0)


def measure(arguments: Namespace, name: str, documents: Documents, table: Table, words: Table) -> None:
    prior = NormalInverseWishart.weak(documents.x.shape[1], 0.2)
    x, paper = documents.x, {"elbo": float("nan"), "cpu_s": float("nan")}

    def fit(method: str) -> BatchFit:
        rng = np.random.default_rng(arguments.seed)
        if method == "fast-vdp":
            return fit_fast_vdp(prior, x, concentration=1.0, point_rounds=20, rng=rng)
        return fit_vdp(prior, x, concentration=1.0, moves="paper" if method == "vdp-paper" else "default", rng=rng)

    for method in ("vdp-paper", "vdp", "fast-vdp"):
        found, seconds = timed(lambda method=method: fit(method))
        assert found.resp is not None
        if method == "vdp-paper":
            paper = {"elbo": found.elbo, "cpu_s": seconds}
        labels = found.resp.argmax(axis=1)
        known = documents.y is not None
        table.add(
            data=name,
            method=method,
            points=len(x),
            topics=x.shape[1],
            components=len(found.log_weight),
            cpu_s=seconds,
            elbo=found.elbo,
            nats_a_point=found.elbo / len(x),
            ratio_to_vdp_paper=found.elbo / paper["elbo"],
            times_vdp_paper=paper["cpu_s"] / seconds,
            mutual_information=float(normalized_mutual_info_score(documents.y, labels)) if known else "",
            agreement=float(adjusted_rand_score(documents.y, labels)) if known else "",
        )
        if method != "vdp-paper":
            _describe(words, name, method, documents, labels)


def _describe(words: Table, name: str, method: str, documents: Documents, labels: np.ndarray) -> None:
    words.drop(data=name, method=method)
    for cluster in np.unique(labels):
        mine = labels == cluster
        share = "" if documents.y is None else float(np.bincount(documents.y[mine]).max() / mine.sum())
        words.add(
            data=name,
            method=method,
            cluster=int(cluster),
            documents=int(mine.sum()),
            class_share=share,
            words=top_words(documents, labels, int(cluster)),
        )


def draw(arguments: Namespace, table: Table) -> None:
    panels = []
    for column, words in (("ratio_to_vdp_paper", "free energy ratio"), ("times_vdp_paper", "times as fast as VDP")):
        series = {}
        for name in sorted({row["data"] for row in table.rows}):
            rows = table.where(data=name)
            series[name] = (floats(rows, column), [row["method"] for row in rows])
        panels.append({"series": series, "x": words, "y": ""})
    plot(path_of(arguments, "fast_vdp_topics", ".png"), panels, "documents by topics")


def main() -> None:
    arguments = options(__doc__, data=("nips", "m10")).parse_args()
    table = Table(path_of(arguments, "fast_vdp_topics", ".csv"), COLUMNS, ("data", "method"))
    words = Table(path_of(arguments, "fast_vdp_topics_words", ".csv"), WORDS, ("data", "method", "cluster"))
    for name in arguments.data:
        measure(arguments, name, {"nips": nips, "m10": m10}[name](arguments), table, words)
    draw(arguments, table)


if __name__ == "__main__":
    main()
