"""Texts as points: embedders, files of texts, and the embedder that a stream records."""

import io
import math
import uuid
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from sklearn.feature_extraction.text import HashingVectorizer

from shoal_service.cli.connectors import BadMessages
from shoal_service.cli.embedding import TextFile, TextLines, embedder_of, record_embedder
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers import BadRows
from shoal_service.client import Client, ConflictError
from shoal_service.logs import make_log

TEXTS = ["the printer is out of paper", "paper, paper: the printer!", "", "refund my money please", "größe 5"]


def splitmix64(n: int) -> int:
    """One step of SplitMix64, in whole numbers of Python."""
    z = (n * 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


@pytest.mark.parametrize("n_features", [64, 192])
def test_hashing_is_a_sum_of_the_bits_of_a_mix(n_features: int) -> None:
    embedder = embedder_of(f"hashing:{n_features}")
    found = embedder.embed(TEXTS)
    assert (embedder.name, found.shape, found.dtype) == (f"hashing-{n_features}/1", (5, n_features), np.float32)
    words = HashingVectorizer(n_features=2**20, ngram_range=(1, 2), norm=None, alternate_sign=False)
    for text, vector in zip(TEXTS, found, strict=True):
        row = words.transform([text]).tocoo()
        expected = [0.0] * n_features
        for bucket, count in zip(row.col.tolist(), row.data.tolist(), strict=True):
            for word in range(n_features // 64):
                bits = splitmix64(bucket * (n_features // 64) + word + 1)
                for bit in range(64):
                    expected[64 * word + bit] += math.log1p(count) * (1 if bits >> bit & 1 else -1)
        length = math.sqrt(sum(value * value for value in expected)) or 1.0
        np.testing.assert_allclose(vector, np.array(expected) / length, atol=1e-6)  # float32 has 6e-8 near 1


def test_texts_with_the_same_words_are_near_each_other_and_batches_do_not_matter() -> None:
    embedder = embedder_of("hashing")
    x = embedder.embed(TEXTS)
    similar = x @ x.T
    assert similar[0, 1] > 0.4 > 0.35 > abs(similar[0, 3])  # of 64 random signs: a deviation of an eighth
    assert not x[2].any()
    np.testing.assert_array_equal(x, np.concatenate([embedder.embed([text]) for text in TEXTS]))


def test_wordllama_needs_no_download() -> None:
    pytest.importorskip("wordllama", reason="needs the extra embed")
    embedder = embedder_of("wordllama")
    x = embedder.embed(["my printer is broken", "the laser jet does not print", "I want my money back"])
    assert x.shape == (3, embedder.n_features)
    assert embedder.name.startswith("wordllama-256/")
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1.0, atol=1e-5)
    assert x[0] @ x[1] > x[0] @ x[2]


def test_an_embedder_that_is_not_there_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wordllama", None)
    with pytest.raises(CommandError, match=r"pip install 'shoal\[embed\]'"):
        embedder_of("wordllama")
    with pytest.raises(CommandError, match="did you mean 'hashing'"):
        embedder_of("hashin")
    with pytest.raises(CommandError, match="use a multiple of 64"):
        embedder_of("hashing:100")


def test_lines_of_a_file_become_points_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\n\n  two  \r\n\xff\nthree" + b"x" * 2000)
    embedder = embedder_of("hashing")
    bad = BadRows(str(path), stops=False)
    with TextFile(str(path), embedder, bad, keep=True, chunk_rows=3) as file:
        first, second = file.chunks()
    np.testing.assert_array_equal(first.points, embedder.embed(["one", "two"]))
    assert first.fields.keys == ["a.txt:1", "a.txt:3"]
    assert first.fields.payloads == [{"text": "one"}, {"text": "two"}]
    assert (second.numbers.tolist(), len(second.fields.payloads[0]["text"]), bad.count) == ([5], 1000, 1)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    with TextFile("-", embedder, BadRows("stdin")) as file:
        (chunk,) = file.chunks()
    assert chunk.fields.keys is None
    messages = BadMessages("a.txt", stops=False, takes_holes=lambda: False, log=make_log("error"))
    found = TextLines(embedder, messages, "a.txt", keep=True).decode([(0, b"one\n"), (4, b"\xff\n"), (6, b"two\n")])
    assert found is not None
    assert (found.keys, messages.count) == (["a.txt@0", "a.txt@6"], 1)
    np.testing.assert_array_equal(found.points, first.points)


def test_the_embedder_is_recorded_with_the_stream_and_checked(
    real_shoal: Callable[[httpx.Request], httpx.Response],
) -> None:
    stream, other = f"s{uuid.uuid4().hex}", f"s{uuid.uuid4().hex}"
    small, large = embedder_of("hashing"), embedder_of("hashing:128")
    with Client(transport=httpx.MockTransport(real_shoal)) as shoal:
        record_embedder(shoal, stream, small, create=True)
        assert shoal.stream_info(stream).settings["embedder"] == "hashing-64/1"
        record_embedder(shoal, stream, small, create=True)
        with pytest.raises(CommandError, match="are embedded by hashing-64/1, and this is hashing-128/1"):
            record_embedder(shoal, stream, large, create=True)
        with pytest.raises(ConflictError, match="cannot be compared"):
            shoal.change_stream(stream, embedder="model-of-mine/2")
        with pytest.raises(ConflictError, match="cannot be compared"):
            shoal.change_stream(stream, embedder=None)
        shoal.create_stream(other, n_features=64)
        record_embedder(shoal, other, small, create=False)
        assert shoal.stream_info(other).settings["embedder"] == "hashing-64/1"
    with Client(stream=f"s{uuid.uuid4().hex}", transport=httpx.MockTransport(real_shoal)) as shoal:
        shoal.ingest(np.zeros((3, 64)), create=True)
        name = str(shoal._session.stream)
        with pytest.raises(CommandError, match="has points and no recorded embedder"):
            record_embedder(shoal, name, small, create=True)
