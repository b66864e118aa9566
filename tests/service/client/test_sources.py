"""Steps of sources in the Python client, against the real service."""

from collections.abc import Callable

import httpx
import numpy as np
import pytest

from shoal_service.client import BadPointsError, Client, ConflictError, NotFoundError, Records

X = np.random.default_rng(5).normal(size=(6, 2))


def test_a_step_is_stored_with_its_position(real_shoal: Callable[[httpx.Request], httpx.Response]) -> None:
    with Client(stream="client-sources", transport=httpx.MockTransport(real_shoal)) as shoal:
        first = shoal.ingest_step(X, source="orders", before=None, after="5", create=True)
        assert (first.accepted, first.log_offset, first.replayed) == (6, 6, False)
        assert shoal.ingest_step(X, source="orders", before=None, after="5").replayed
        records = Records(X.astype(np.float32), keys=[f"k{i}" for i in range(6)])
        shoal.ingest_step(records, source="orders", before="5", after="9", format="ndjson")
        with pytest.raises(ConflictError) as refused:
            shoal.ingest_step(X, source="orders", before="5", after="8")
        assert (refused.value.type, refused.value.position) == ("source-position", "9")
        (held,) = shoal.sources()
        assert (held.source, held.partition, held.position, held.before) == ("orders", "0", "9", "5")
        assert (held.n_points, held.seq, held.log_offset) == (6, 2, 12)
        shoal.forget_source("orders")
        assert shoal.sources() == []
        with pytest.raises(NotFoundError):
            shoal.forget_source("orders")
        with pytest.raises(BadPointsError, match="at least one row"):
            shoal.ingest_step(X[:0], source="orders", before=None, after="5")
