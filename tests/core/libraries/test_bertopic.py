"""The calls that BERTopic makes of its cluster model (`hdbscan_model`), and BERTopic itself where it is installed."""

from typing import Any

import numpy as np
import pytest

from shoal import StreamingDPMixture

RNG = np.random.default_rng(2)
GROUP = RNG.integers(3, size=900)
X = 9.0 * np.eye(3, 4)[GROUP] + RNG.normal(size=(900, 4))


def online(model: Any, embeddings: np.ndarray) -> tuple[Any, list[int]]:
    """A step of `BERTopic.partial_fit` (0.17, `_cluster_embeddings`)."""
    assert hasattr(model, "partial_fit")
    model = model.partial_fit(embeddings)
    return model, list(model.labels_)


def test_topics_of_batches_last_and_new_ones_get_new_numbers() -> None:
    model, order = StreamingDPMixture(warmup_points=200), np.argsort(GROUP == 2, kind="stable")  # the last group later
    topics: list[int] = []
    for start in range(0, 900, 100):
        model, found = online(model, X[order[start : start + 100]])
        assert len(found) == 100
        topics += found
    late = set(topics[-100:])
    assert len(late) == 1
    assert not late & set(topics[200:500])
    assert set(model.predict(X[GROUP == 2])) == late


def test_a_whole_fit_has_labels_for_every_document() -> None:
    model = StreamingDPMixture()
    model.fit(X, y=None)
    assert len(set(zip(model.labels_, GROUP, strict=True))) == len(set(model.labels_))  # each is of one group
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert not hasattr(model, "probabilities_")  # else BERTopic asks more of it


def test_bertopic_itself_names_topics_as_they_come() -> None:
    bertopic = pytest.importorskip("bertopic", reason="needs BERTopic, which is no dependency: pip install bertopic")
    from bertopic.dimensionality import BaseDimensionalityReduction
    from bertopic.vectorizers import OnlineCountVectorizer

    words = np.array([["wind", "rain", "storm"], ["goal", "match", "team"], ["bread", "butter", "soup"]])
    documents = [" ".join(RNG.choice(words[k], 5)) for k in GROUP]
    parts = {"umap_model": BaseDimensionalityReduction(), "vectorizer_model": OnlineCountVectorizer()}
    model = bertopic.BERTopic(embedding_model=None, hdbscan_model=StreamingDPMixture(), **parts)
    for start in range(0, 900, 300):
        model.partial_fit(documents[start : start + 300], embeddings=X[start : start + 300])
    named = {frozenset(word for word, _ in pairs if word) for pairs in model.topic_representations_.values()}
    assert named == {frozenset(row) for row in words}
