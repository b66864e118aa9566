"""Answers as JSON, made from NumPy arrays.

msgspec writes NaN and infinity as null, as documented for infinite moments. Long answers are written in pieces, so that
a thread that writes one releases the lock of the interpreter between them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_RESPONSIBILITIES = 5
MIN_RESPONSIBILITY = 1e-3
_PIECE_ROWS = 512
_FEW_ROWS = 8
"""Up to this many rows are sorted one by one, which is faster than NumPy."""


class Head(NamedTuple):
    """First fields of every answer about a stream."""

    stream: str
    incarnation: str
    log_offset: int


class ComponentColumns(NamedTuple):
    """Components of one page, largest first. Infinite moments are inf or NaN."""

    ids: Ints  # (K,)
    weight: Floats  # (K,)
    mass: Floats  # (K,)
    mean: Floats  # (K, D)
    variance: Floats  # (K, D)
    born_at: Ints  # (K,)
    last_seen_at: Ints  # (K,)
    covariance: Floats | None = None  # (K, D, D)
    telling: list[list[dict[str, Any]]] | None = None  # (K,) of at most five each
    levels: Sequence[dict[str | int, dict[str, float]]] | None = None  # (K,)
    label: list[str | None] | None = None  # (K,)
    note: list[str | None] | None = None  # (K,)


class PredictionColumns(NamedTuple):
    """Predictions for N points and the K components `ids`."""

    ids: Ints  # (K,)
    component: Ints  # (N,) best existing id
    log_density: Floats  # (N,) nats
    novelty: Floats  # (N,) in [0, 1]
    resp: Floats  # (N, K) in [0, 1]
    cluster: Ints | None = None  # (N,) id of the best component's cluster, where asked for


def encode(answer: Any) -> bytes:
    """Write dicts, lists, NumPy arrays and scalars, text and None as JSON. NaN and infinity become null."""
    return _ENCODER.encode(answer)


def encode_components(
    head: Head,
    *,
    points_seen: int,
    status: str,
    feature_names: Sequence[str] | None = None,
    new_weight: float,
    page: ComponentColumns,
    next_cursor: str | None,
) -> bytes:
    """Write the answer of GET /components, which `wire.models.ComponentsOut` documents."""
    about = {"points_seen": points_seen, "status": status, "feature_names": feature_names, "new_weight": new_weight}
    before = {**head._asdict(), **about}
    return _with_list(before, "components", _component_pieces(page), {"next": next_cursor})


def named_components(p: PredictionColumns) -> list[int]:
    """The ids in the answer about predictions."""
    large: Ints = p.ids[(p.resp >= MIN_RESPONSIBILITY).any(axis=0)]
    return sorted({*p.component.tolist(), *large.tolist()})


def encode_predictions(head: Head, predictions: PredictionColumns, labels: Mapping[str, str] | None = None) -> bytes:
    """Write the answer of GET and POST /predict, which `wire.models.PredictOut` documents. `labels`: texts by id."""
    before = {**head._asdict(), "labels": labels} if labels else head._asdict()
    if len(predictions.component) <= _FEW_ROWS:
        return encode({**before, "predictions": _prediction_piece(predictions, slice(None))})
    return _with_list(before, "predictions", _prediction_pieces(predictions), {})


def _component_pieces(page: ComponentColumns) -> Iterator[bytes]:
    columns = {"id" if name == "ids" else name: column for name, column in page._asdict().items() if column is not None}
    for k in range(len(page.ids)):
        yield encode({name: column[k] for name, column in columns.items()})


def _prediction_pieces(p: PredictionColumns) -> Iterator[bytes]:
    for start in range(0, len(p.component), _PIECE_ROWS):
        yield encode(_prediction_piece(p, slice(start, start + _PIECE_ROWS)))[1:-1]


def _prediction_piece(p: PredictionColumns, rows: slice) -> list[dict[str, Any]]:
    columns = [column[rows].tolist() for column in (p.component, p.log_density, p.novelty)]
    largest = _largest_responsibilities(p.ids, p.resp[rows])
    found = [
        {"component": component, "log_density": density, "novelty": novelty, "responsibilities": responsibilities}
        for component, density, novelty, responsibilities in zip(*columns, largest, strict=True)
    ]
    if p.cluster is None:
        return found
    clusters = p.cluster[rows].tolist()
    return [{"cluster": cluster, **prediction} for cluster, prediction in zip(clusters, found, strict=True)]


def _largest_responsibilities(ids: Ints, resp: Floats) -> list[list[dict[str, float]]]:
    """For each row of resp (N, K): at most five of at least 1e-3, in descending order, the older id first if equal."""
    if len(resp) <= _FEW_ROWS:
        return [_largest_of(ids, row) for row in resp]
    rows, columns = (resp >= MIN_RESPONSIBILITY).nonzero()
    p, own = resp[rows, columns], ids[columns]
    order = np.lexsort((own, -p, rows))
    large = [{"id": i, "p": q} for i, q in zip(own[order].tolist(), p[order].tolist(), strict=True)]
    ends = np.bincount(rows, minlength=len(resp)).cumsum().tolist()
    return [large[start : min(end, start + MAX_RESPONSIBILITIES)] for start, end in pairwise([0, *ends])]


def _largest_of(ids: Ints, row: Floats) -> list[dict[str, float]]:
    """The same for one row (K,)."""
    large = (row >= MIN_RESPONSIBILITY).nonzero()[0].tolist()
    order = sorted((-row.item(k), ids.item(k)) for k in large)[:MAX_RESPONSIBILITIES]
    return [{"id": i, "p": -q} for q, i in order]


def _with_list(before: dict[str, Any], name: str, pieces: Iterator[bytes], after: dict[str, Any]) -> bytes:
    """Write `{...before, name: [pieces], ...after}`, the list piece by piece."""
    tail = b"," + encode(after)[1:] if after else b"}"
    return b"".join((encode(before)[:-1], b",", encode(name), b":[", b",".join(pieces), b"]", tail))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)


def first_points(x: Any, limit: int) -> list[Any]:
    """Return the first rows of points (N, D) as JSON has them: lists of numbers, or sparse rows."""
    x = x[:limit]
    if not hasattr(x, "indptr"):
        return list(x.tolist())
    rows = zip(x.indptr[:-1], x.indptr[1:], strict=True)
    return [{"indices": x.indices[a:b].tolist(), "values": x.data[a:b].tolist()} for a, b in rows]
