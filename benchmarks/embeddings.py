"""Embeddings of hundreds of features: agreement, held-out density, CPU time and memory of the ways to cluster them.

Run: python benchmarks/embeddings.py [--set drawn long news] [--way subspace ...]. A run replaces older lines of them.

`drawn`: unit vectors with one direction in common and sixty clusters of Zipf sizes, 384, 768 and 1,536 features.
`long`: the same clusters in 1,536 features, with 100,000, 200,000 and 500,000 rows to learn, drawn as they are needed.
`news` (SHOAL_DATA=folder with news_t_stream.npz, and the packages `wordllama`, `safetensors` and `tokenizers`):
titles as the mean of their words' vectors, 256 features, in the order of the stream and shuffled. Four fifths are
learned, the last fifth is held out.

Ways: `subspace` and `von_mises_fisher` on the vectors as they are, the latter also without refinement; `gaussian` on 32
principal components of the first 1,000 rows; `MiniBatchKMeans` on the vectors, told the true number of clusters. Each
case has a process of its own, one thread, batches of 500 rows.

Columns: components; agreement (adjusted Rand index) of the labels of each batch as predicted after it was learned, and
of the held-out rows; held-out log density in nats a row, of all features; CPU microseconds a row with refinements and
prior, without compilation; largest resident memory in MiB beyond that before the first row.
"""

import argparse
import csv
import itertools
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture
from shoal.points.arrays import Array, IntArray

BATCH, WARM_UP, DIRECTIONS = 500, 1_000, 32
DRAWN_ROWS, DRAWN_HELD, CLUSTERS = 20_000, 4_000, 60
LONG_ROWS, LONG_FEATURES, BLOCK = (100_000, 200_000, 500_000), 1_536, 20_000
WAYS = ("subspace", "gaussian on components", "von_mises_fisher", "von_mises_fisher in one pass", "k-means told K")
COLUMNS = ("data", "way", "components", "true", "each batch", "held out", "log density", "us a row", "MiB")
RESULTS = Path(__file__).parent / "results" / "embeddings.csv"


Blocks = Iterator[tuple[Array, IntArray]]
"""Rows and their clusters."""


def drawn(n_features: int) -> tuple[Array, IntArray, int]:
    """Unit vectors, their clusters, and how many rows are to be learned."""
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, CLUSTERS + 1)
    z = rng.choice(CLUSTERS, size=DRAWN_ROWS + DRAWN_HELD, p=share / share.sum())
    common, own = rng.normal(size=n_features), rng.normal(size=(CLUSTERS, n_features))
    return unit_vectors(rng, common, own[z]), z, DRAWN_ROWS


def unit_vectors(rng: np.random.Generator, common: Array, own: Array) -> Array:
    """Vectors (N, D) around the directions `own` (N, D) of their clusters."""
    x = 0.6 * common + 0.5 * own + 0.5 * rng.normal(size=own.shape)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def drawn_blocks() -> Blocks:
    """Blocks of such vectors, without an end."""
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, CLUSTERS + 1)
    common, own = rng.normal(size=LONG_FEATURES), rng.normal(size=(CLUSTERS, LONG_FEATURES))
    while True:
        z = rng.choice(CLUSTERS, size=BLOCK, p=share / share.sum())
        yield unit_vectors(rng, common, own[z]), z


def news(order: str) -> tuple[Array, IntArray, int]:
    """Titles as unit vectors, their stories, and how many are to be learned."""
    from scipy.sparse import csr_array

    archive = np.load(Path(os.environ["SHOAL_DATA"]) / "news_t_stream.npz")
    counts = csr_array((archive["data"].astype(float), archive["indices"], archive["indptr"]), tuple(archive["shape"]))
    x = counts @ word_vectors(archive["vocab"].tolist())
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    rows = np.arange(len(x)) if order == "in time" else np.random.default_rng(0).permutation(len(x))
    return x[rows], archive["y"][rows].astype(np.int64), len(x) * 4 // 5


def word_vectors(words: list[str]) -> Array:
    """The vectors (W, 256) that the package `wordllama` carries, of a word the mean of its pieces'."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    spec = find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise SystemExit("the package wordllama is not installed; install it to run `news`")
    folder = Path(spec.origin).parent
    (table,) = load_file(folder / "weights" / "l2_supercat_256.safetensors").values()
    pieces = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    split = [pieces.encode(word, add_special_tokens=False).ids for word in words]
    return np.array([table[own].astype(np.float64).mean(axis=0) for own in split])


class KMeans:
    """`MiniBatchKMeans` told the number of clusters; it begins when it has that many rows."""

    def __init__(self, n_clusters: int) -> None:
        self._model, self._waiting, self._n = MiniBatchKMeans(n_clusters, random_state=0), list[Array](), n_clusters

    def partial_fit(self, x: Array) -> None:
        self._waiting.append(x)
        if sum(map(len, self._waiting)) >= self._n:
            self._model.partial_fit(np.vstack(self._waiting))
            self._waiting = []

    def predict(self, x: Array) -> IntArray:
        return np.asarray(self._model.predict(x), dtype=np.int64)


def model_of(way: str, x: Array, n_clusters: int) -> tuple[Any, Callable[[Array], Array]]:
    """The model, and what makes its rows of the vectors. `x` are the first vectors."""
    if way == "k-means told K":
        return KMeans(n_clusters), lambda rows: rows
    if way == "gaussian on components":
        return StreamingDPMixture("gaussian"), PCA(DIRECTIONS, svd_solver="full").fit(x[:WARM_UP]).transform
    family, _, once = way.partition(" in ")
    return StreamingDPMixture(family, refinement=None if once else "auto"), lambda rows: rows


def blocks_of(data: str) -> tuple[Blocks, int, Array, IntArray]:
    """Blocks of the rows to learn and how many there are, then the rows that are held out and their clusters."""
    kind, _, what = data.partition(" ")
    if kind == "long":
        blocks, n = drawn_blocks(), int(what)
        x, z = next(blocks)
        return itertools.islice(blocks, n // BLOCK), n, x[:DRAWN_HELD], z[:DRAWN_HELD]
    x, z, n = news(what) if kind == "news" else drawn(int(what))
    return iter([(x[:n], z[:n])]), n, x[n:], z[n:]


def measure(data: str, way: str) -> list[str]:
    """One case: a line of the table."""
    blocks, n, held, held_z = blocks_of(data)
    first = next(blocks)
    for _ in range(2):  # kernels are loaded in the first turn
        model, rows_of = model_of(way, first[0], CLUSTERS)
        for start in range(0, 2 * WARM_UP, BATCH):
            model.partial_fit(rows_of(first[0][start : start + BATCH]))
    n_true = len(np.unique(first[1]))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    model, rows_of = model_of(way, first[0], n_true)
    spent, labels, true = time.process_time() - begun, [], []
    for x, z in itertools.chain([first], blocks):
        rows = rows_of(x)
        for start in range(0, len(rows), BATCH):
            begun = time.process_time()
            model.partial_fit(rows[start : start + BATCH])
            spent += time.process_time() - begun
            labels.append(model.predict(rows[start : start + BATCH]))
        true.append(z)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    components = len(model.component_ids_) if isinstance(model, StreamingDPMixture) else n_true
    dense = way.startswith(("subspace", "von_mises_fisher"))
    return [
        data,
        way,
        str(components),
        str(n_true),
        f"{adjusted_rand_score(np.concatenate(true), np.concatenate(labels)):.3f}",
        f"{adjusted_rand_score(held_z, model.predict(rows_of(held))):.3f}",
        f"{model.score_samples(held).mean():.1f}" if dense else "-",
        f"{1e6 * spent / n:.0f}",
        f"{more / 1024:.0f}",
    ]


def cases(kinds: Sequence[str], ways: Sequence[str]) -> Iterator[tuple[str, str]]:
    sets = [f"drawn {d}" for d in (384, 768, 1536)] if "drawn" in kinds else []
    sets += [f"long {n}" for n in LONG_ROWS] if "long" in kinds else []
    sets += ["news in time", "news shuffled"] if "news" in kinds else []
    return ((data, way) for data in sets for way in ways)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("drawn", "long", "news"), nargs="+", default=["drawn"])
    parser.add_argument("--way", choices=WAYS, nargs="+", default=WAYS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(";".join(measure(*given.one)))
        return
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with RESULTS.open(newline="") as before:
        lines = {tuple(line[:2]): line for line in csv.reader(before)}
    print("; ".join(COLUMNS))
    for case in cases(given.set, given.way):
        command = [sys.executable, __file__, "--one", *case]
        said = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True, check=True).stdout
        lines[case] = said.splitlines()[-1].split(";")
        print("; ".join(lines[case]), flush=True)
    with RESULTS.open("w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows(lines.values())


if __name__ == "__main__":
    main()
