"""A conjugate family of one's own, defined here and registered: stream, engines, service and command line serve it.

Waiting times: exponential components under gamma priors. The family has the methods of the contract and no others, and
no kernels.
"""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import httpx
import numpy as np
import pytest
from scipy.special import gammaln, psi
from scipy.stats import lomax
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

from shoal import DPMixture, StreamingDPMixture
from shoal.errors import OutsideDomainError
from shoal.estimators.batch_engines import ENGINES
from shoal.families import FAMILIES, log_marginal, register
from shoal.families.counts import AdditiveFamily
from shoal.families.hyperparameters import Hyperparameters, as_positive_features
from shoal.points.domains import Domain
from shoal_service.app import create_app
from shoal_service.cli import app as command
from shoal_service.logs import make_log
from shoal_service.settings import Settings

TIMES = Domain("waiting times", "numbers above 0", lambda values: values > 0.0)


class Stats(NamedTuple):
    mass: np.ndarray  # (K,)
    total: np.ndarray  # (K, D)


class Params(NamedTuple):
    shape: np.ndarray  # (K, D)
    rate: np.ndarray  # (K, D)


class Draw(NamedTuple):
    intensity: np.ndarray  # (K, D)


class WaitingTimes(AdditiveFamily, Hyperparameters):
    """x_d ~ Exponential(theta_d), theta_d ~ Gamma(shape_d, rate_d)."""

    FIELDS: ClassVar[dict[str, str]] = {"shape": "shape", "rate": "rate"}
    name: ClassVar[str] = "waiting_times"
    description: ClassVar[str] = "waiting times"
    domain: ClassVar[Domain] = TIMES

    def __init__(self, shape: Any, rate: Any) -> None:
        shapes, rates = as_positive_features(shape=shape, rate=rate)
        self._freeze(shape=shapes, rate=rates)

    @classmethod
    def weak(cls, n_features: int) -> "WaitingTimes":
        return cls(np.full(n_features, 2.0), 1.0)

    @classmethod
    def candidate_priors(cls, rows: np.ndarray, thorough: bool) -> list["WaitingTimes"]:
        return [cls(np.full(rows.shape[1], 1.0 + worth), worth * rows.mean(axis=0)) for worth in (0.25, 1.0, 4.0)]

    @property
    def n_features(self) -> int:
        return int(self.shape.size)

    @property
    def n_free_parameters(self) -> int:
        return self.n_features

    def empty_stats(self, n_components: int) -> Stats:
        return Stats(np.zeros(n_components), np.zeros((n_components, self.n_features)))

    def suffstats(self, x: np.ndarray, resp: np.ndarray) -> Stats:
        return Stats(resp.sum(axis=0), resp.T @ x)

    def posterior(self, stats: Stats) -> Params:
        return Params(self.shape + stats.mass[:, None], self.rate + stats.total)

    def natural(self, params: Params) -> np.ndarray:
        return np.hstack(params)

    def from_natural(self, natural: np.ndarray) -> Params:
        return Params(natural[:, : self.n_features], natural[:, self.n_features :])

    def log_partition(self, params: Params) -> np.ndarray:
        return (gammaln(params.shape) - params.shape * np.log(params.rate)).sum(axis=1)

    def mean_params(self, params: Params) -> np.ndarray:
        return np.hstack([psi(params.shape) - np.log(params.rate), -params.shape / params.rate])

    def log_carrier(self, stats: Stats) -> np.ndarray:
        return np.zeros(len(stats.mass))

    def expected_log_likelihood(self, params: Params, x: np.ndarray) -> np.ndarray:
        log_mean, less_mean = np.hsplit(self.mean_params(params), 2)
        return x @ less_mean.T + log_mean.sum(axis=1)

    def predictive(self, params: Params) -> Params:
        return params

    def log_predictive_from(self, predictive: Params, x: np.ndarray) -> np.ndarray:
        shape, rate = predictive
        return (np.log(shape / rate) - (shape + 1.0) * np.log1p(x[:, None, :] / rate)).sum(axis=2)

    def log_predictive(self, params: Params, x: np.ndarray) -> np.ndarray:
        return self.log_predictive_from(params, x)

    def predictive_mean(self, params: Params) -> np.ndarray:
        return params.rate / np.where(params.shape > 1.0, params.shape - 1.0, np.nan)

    def predictive_variance(self, params: Params) -> np.ndarray:
        excess = np.where(params.shape > 2.0, params.shape - 2.0, np.nan)
        variance = params.rate**2 * params.shape / ((params.shape - 1.0) ** 2 * excess)
        return np.where(params.shape > 2.0, variance, np.inf)

    def predictive_covariance(self, params: Params) -> np.ndarray:
        return self.predictive_variance(params)[:, :, None] * np.eye(self.n_features)

    def sample_parameters(self, params: Params, rng: np.random.Generator) -> Draw:
        return Draw(rng.standard_gamma(params.shape) / params.rate)

    def sample_points(self, parameters: Draw, n: int, rng: np.random.Generator) -> np.ndarray:
        k, d = parameters.intensity.shape
        return rng.exponential(size=(k, n, d)) / parameters.intensity[:, None, :]

    def log_likelihood(self, parameters: Draw, x: np.ndarray) -> np.ndarray:
        return np.log(parameters.intensity).sum(axis=1) - x @ parameters.intensity.T

    def positions(self, stats: Stats) -> np.ndarray:
        params = self.posterior(stats)
        return np.log(params.rate / params.shape)

    @staticmethod
    def coordinates(x: np.ndarray) -> np.ndarray:
        return np.log(x)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(WaitingTimes)
    yield
    del FAMILIES[WaitingTimes.name]


def waits(n: int) -> tuple[np.ndarray, np.ndarray]:
    """n rows of three kinds in turn, six features, each kind long in two of them."""
    z = np.arange(n) % 3
    scale = np.where(np.arange(6) // 2 == z[:, None], 30.0, 0.5)
    return np.random.default_rng(n).exponential(scale), z


PRIOR = WaitingTimes(np.full(6, 1.5), 1.0)


def test_its_algebra_is_that_of_scipy() -> None:
    x, _ = waits(9)
    params = PRIOR.posterior(PRIOR.suffstats(x, np.ones((9, 1))))
    expected = lomax(c=params.shape, scale=params.rate).logpdf(x).sum(axis=1)
    np.testing.assert_allclose(PRIOR.log_predictive(params, x)[:, 0], expected, rtol=1e-12)
    chain, stats = 0.0, PRIOR.empty_stats(1)
    for i in range(9):
        chain += float(PRIOR.log_predictive(PRIOR.posterior(stats), x[i : i + 1])[0, 0])
        stats = PRIOR.add(stats, PRIOR.suffstats(x[i : i + 1], np.ones((1, 1))))
    assert log_marginal(PRIOR, stats)[0] == pytest.approx(chain)


def test_a_stream_learns_refines_and_is_saved(tmp_path: Path) -> None:
    x, z = waits(1_500)
    model = StreamingDPMixture("waiting_times", warmup_points=100).partial_fit(x)
    assert adjusted_rand_score(z, model.predict(x)) > 0.95
    masses = model.masses_.copy()
    assert model.refine().components_after == len(model.component_ids_) >= 3
    assert adjusted_rand_score(z, model.predict(x)) > 0.95
    model.save(tmp_path / "model.shoal")
    again = StreamingDPMixture.load(tmp_path / "model.shoal")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    pieces = StreamingDPMixture("waiting_times", warmup_points=100)
    for start in range(0, len(x), 321):
        pieces.partial_fit(x[start : start + 321])
    np.testing.assert_array_equal(pieces.masses_, masses)
    with pytest.raises(OutsideDomainError):
        model.partial_fit(-x)


@pytest.mark.parametrize("method", ENGINES)
def test_every_engine_fits_it(method: str) -> None:
    x, z = waits(90)
    settings = {"n_samples": 5, "burn_in": 5} if ENGINES[method].is_sampler else {}
    model = DPMixture(PRIOR, method=method, random_state=0, **settings).fit(x)
    assert adjusted_rand_score(z, model.labels_) > 0.8
    assert np.isfinite(model.score_samples(x)).all()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A whole service in this process."""
    with open(tmp_path / "log", "w") as log:
        app = create_app(Settings(store="memory", publish_interval_s=0.01), log=make_log("info", "json", log))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            yield client


@pytest.mark.anyio
async def test_the_service_serves_it(http: httpx.AsyncClient) -> None:
    x, z = waits(300)
    StreamingDPMixture(WaitingTimes.name, prior=PRIOR).fit(x)  # compiles outside of the service's time limits
    prior = {"shape": [1.5] * 6, "rate": [1.0] * 6}
    made = await http.put("/streams/queue", json={"n_features": 6, "family": "waiting_times", "prior": prior})
    assert made.status_code == 201, made.text
    told = await http.post(
        "/streams/queue/ingest", json={"points": x.tolist()}, params={"wait": "applied", "timeout": 60}
    )
    assert told.status_code == 200, told.text
    page = (await http.get("/streams/queue/components")).json()
    assert len(page["components"]) >= 3
    assert len(page["components"][0]["mean"]) == 6
    answer = await http.post("/streams/queue/predict", json={"points": x.tolist()})
    assert answer.status_code == 200, answer.text
    labels = [row["component"] for row in answer.json()["predictions"]]
    assert adjusted_rand_score(z, labels) > 0.95
    refused = await http.post("/streams/queue/ingest", json={"points": (-x[:2]).tolist()})
    assert refused.status_code == 400
    assert "waiting_times" in json.dumps((await http.get("/openapi.json")).json())


@pytest.mark.parametrize("method", ["default", "vdp"])
def test_the_command_line_fits_it(tmp_path: Path, method: str) -> None:
    x, z = waits(300)
    np.save(tmp_path / "x.npy", x)
    arguments = ["fit", str(tmp_path / "x.npy"), "--family", "waiting_times", "--method", method]
    said = CliRunner().invoke(command, [*arguments, "--json", "--out", str(tmp_path / "labels.npy")])
    assert said.exit_code == 0, said.output
    assert adjusted_rand_score(z, np.load(tmp_path / "labels.npy")) > 0.8
