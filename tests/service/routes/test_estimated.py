"""Proportions, unit vectors, and a family learnt by stochastic gradient through the service."""

import json
import time
from typing import Any

import numpy as np
import pytest

from harness.gradient_proportions import GradientProportions
from shoal.families import FAMILIES

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]

JSON = {"Content-Type": "application/json"}
D = 4


def rows(family: str, n: int = 160) -> np.ndarray:
    """Rows of two kinds in turn."""
    rng = np.random.default_rng(4)
    kinds = np.arange(n) % 2
    if family != "von_mises_fisher":
        x = rng.standard_gamma(60.0 * np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.6]])[kinds])
        return np.asarray(x / x.sum(axis=1, keepdims=True))
    x = np.eye(D)[kinds] + 0.1 * rng.standard_normal((n, D))
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


PRIORS: dict[str, dict[str, Any]] = {
    "dirichlet": {"precision": 60.0, "pseudo_counts": [1.0] * D},
    GradientProportions.name: {"precision": 60.0, "pseudo_counts": [1.0] * D},
    "von_mises_fisher": {"mean": [1.0, 0.0, 0.0, 0.0], "mean_concentration": 0.0, "concentration": 90.0},
}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, GradientProportions.name, GradientProportions)


async def made(running: Any, family: str, prior: Any) -> None:
    body = json.dumps({"n_features": D, "family": family, "warmup_points": 40, "prior": prior}).encode()
    reply = await running.http.put(f"/streams/{family}", content=body, headers=JSON)
    assert reply.status_code == 201, reply.text


async def send(running: Any, family: str, x: np.ndarray) -> Any:
    body = json.dumps({"points": x.tolist()}).encode()
    return await running.http.post(f"/streams/{family}/ingest", content=body, headers=JSON)


@pytest.mark.parametrize("prior", ["auto", "own"])
@pytest.mark.parametrize("family", PRIORS)
async def test_a_stream_learns_them_and_answers(running: Any, family: str, prior: str) -> None:
    await made(running, family, PRIORS[family] if prior == "own" else "auto")
    x = rows(family)
    for part in (x[:70], x[70:]):
        reply = await send(running, family, part)
        assert reply.status_code == 202, reply.text
    deadline = time.monotonic() + 300  # the first point of a family may wait for its kernel to be compiled
    params = {"min_offset": reply.json()["log_offset"], "timeout": 10}
    page = await running.http.get(f"/streams/{family}/components", params=params)
    while page.status_code == 504 and time.monotonic() < deadline:
        page = await running.http.get(f"/streams/{family}/components", params=params)
    assert page.status_code == 200, page.text
    first, second = page.json()["components"][:2]
    assert first["mass"] + second["mass"] > 150
    kinds = [x[::2].mean(axis=0), x[1::2].mean(axis=0)]
    means = [np.array(component["mean"]) for component in (first, second)]
    distances = [[np.abs(mean - kind).max() for kind in kinds] for mean in means]
    assert sorted(int(np.argmin(row)) for row in distances) == [0, 1]
    assert max(min(row) for row in distances) < 0.05
    body = json.dumps({"points": x[:4].tolist()}).encode()
    answer = await running.http.post(f"/streams/{family}/predict", content=body, headers=JSON)
    assert answer.status_code == 200, answer.text
    found = [row["component"] for row in answer.json()["predictions"]]
    assert found[0] == found[2] != found[1] == found[3]
    whole = await running.http.get(f"/streams/{family}/components", params={"fields": "covariance"})
    assert np.array(whole.json()["components"][0]["covariance"]).shape == (D, D)


@pytest.mark.parametrize("family", PRIORS)
async def test_rows_outside_the_domain_are_refused_whole(running: Any, family: str) -> None:
    await made(running, family, "auto")
    x = rows(family, 10)
    x[6] *= 1.1
    reply = await send(running, family, x)
    assert reply.status_code == 400, reply.text
    assert reply.json()["type"].endswith("outside-domain")
    assert "row 6" in reply.json()["detail"]


async def test_a_refinement_is_refused_by_name(running: Any) -> None:
    family = GradientProportions.name
    await made(running, family, PRIORS["dirichlet"])
    await send(running, family, rows("dirichlet", 20))
    reply = await running.http.post(f"/streams/{family}/refine", content=b"{}", headers=JSON)
    assert reply.status_code == 409, reply.text
    assert f"family '{family}', which is not conjugate" in reply.json()["detail"]


async def test_a_prior_that_is_none_is_refused(running: Any) -> None:
    body = json.dumps({"n_features": D, "family": "dirichlet", "prior": {"precision": 60.0}}).encode()
    reply = await running.http.put("/streams/words", content=body, headers=JSON)
    assert reply.status_code in (400, 422), reply.text
    assert "pseudo_counts" in reply.text


@pytest.mark.parametrize("family", ["dirichlet", "von_mises_fisher"])
async def test_steps_that_a_family_no_longer_takes_are_refused_and_not_dropped(family: str, running: Any) -> None:
    """Settings that shoal 0.1.0 stored may have them; those of a new stream would do nothing."""
    prior = {**PRIORS[family], "step_power": 0.9}
    reply = await running.http.put("/streams/words", json={"n_features": D, "family": family, "prior": prior})
    assert reply.status_code == 400, reply.text
    assert "prior has 'step_power'" in reply.json()["detail"]
    assert (await running.http.get("/streams/words")).status_code == 404
