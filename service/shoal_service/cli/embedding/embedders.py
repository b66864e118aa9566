"""Embedders: from texts to vectors of unit length, the same for the same text in every process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shoal.errors import did_you_mean
from shoal_service.cli.exits import CommandError

Vectors = npt.NDArray[np.float32]

HASHING_FEATURES = 64
"""Features of `hashing` unless others are asked for."""
_BUCKETS = 1 << 20
_NAMES = ("hashing", "wordllama")


class Embedder(Protocol):
    """Embedder of texts."""

    name: str
    """Name and version. Vectors of two names cannot be compared."""
    n_features: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return a vector for each text, (n, n_features). It has length 1, or 0 for a text without words."""


class HashingEmbedder:
    """Sums of fixed random signs of words and of pairs of neighbouring words (Weinberger et al. 2009; Achlioptas 2003).

    A word is hashed to one of 2^20 buckets, and the signs of a bucket are the bits of a fixed mix of its number. A word
    that occurs n times counts log(1 + n). Texts with the same words are near each other; synonyms are not.
    """

    def __init__(self, n_features: int = HASHING_FEATURES) -> None:
        """`n_features`: a multiple of 64, so that whole words of bits are used."""
        from sklearn.feature_extraction.text import HashingVectorizer

        if n_features < 64 or n_features % 64 or n_features > 4096:
            raise CommandError(f"hashing:{n_features} is no size; use a multiple of 64 up to 4096, as in hashing:128")
        self.name, self.n_features = f"hashing-{n_features}/1", n_features
        self._words = HashingVectorizer(
            n_features=_BUCKETS, ngram_range=(1, 2), norm=None, alternate_sign=False, dtype=np.float64
        )

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        counts = self._words.transform(texts)
        buckets, columns = np.unique(counts.indices, return_inverse=True)
        counts = type(counts)((np.log1p(counts.data), columns, counts.indptr), (len(texts), len(buckets)))
        return _unit(counts @ _signs(buckets, self.n_features))


class WordllamaEmbedder:
    """Mean of the static vectors of tokens that the package wordllama ships (extra `embed`), 256 features."""

    n_features = 256

    def __init__(self) -> None:
        try:
            import wordllama
        except ImportError:
            raise CommandError(
                "--embed wordllama needs the package wordllama; run pip install 'shoal[embed]', or use hashing"
            ) from None
        from importlib.metadata import version

        self.name = f"wordllama-256/{version('wordllama')}"
        folder = Path(wordllama.__file__).parent  # it has the vectors and the tokenizer: nothing is downloaded
        try:
            self._model: Any = wordllama.WordLlama.load(dim=256, cache_dir=folder, disable_download=True)
        except (OSError, ValueError) as error:
            raise CommandError(f"the vectors of wordllama cannot be loaded: {error}; use hashing") from error

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        return _unit(np.asarray(self._model.embed(list(texts)), np.float64))


def embedder_of(words: str) -> Embedder:
    """Return an embedder by its name, as in `hashing` and `hashing:128`. CommandError for an unknown one."""
    name, colon, size = words.partition(":")
    if name == "wordllama" and not colon:
        return WordllamaEmbedder()
    if name == "hashing" and (not colon or size.isdecimal()):
        return HashingEmbedder(int(size) if colon else HASHING_FEATURES)
    raise CommandError(
        f"--embed {words} is unknown; {did_you_mean(name, _NAMES)}use hashing, hashing:128 or wordllama; vectors of "
        "another model are sent as points"
    )


def _signs(buckets: npt.NDArray[Any], n_features: int) -> npt.NDArray[np.float64]:
    """Signs of buckets, (n, n_features): bits of SplitMix64 (Steele, Lea and Flood 2014)."""
    words = n_features // 64
    state: npt.NDArray[Any] = buckets.astype(np.uint64)[:, None] * np.uint64(words) + np.arange(
        1, words + 1, dtype=np.uint64
    )
    state = state * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    bits = np.unpackbits(state.astype("<u8").view(np.uint8), bitorder="little")
    signs: npt.NDArray[np.float64] = 2.0 * bits.reshape(len(buckets), n_features).astype(np.float64) - 1.0
    return signs


def _unit(x: npt.NDArray[np.float64]) -> Vectors:
    length = np.sqrt(np.square(x).sum(axis=1, keepdims=True))
    unit: Vectors = (x / np.where(length > 0, length, 1.0)).astype(np.float32)
    return unit
