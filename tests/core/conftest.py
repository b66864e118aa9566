"""What tests of streams share: data, priors, and a driver that feeds a stream in pieces and keeps what it says."""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from harness.short_form import short_form
from shoal.families import KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.mixture import Event, MixtureState, StreamSettings, from_bytes, to_bytes
from shoal.points.arrays import Array, IntArray
from shoal.sequential import AssimilateInfo, assimilate_inplace, initial_state

FAMILY_NAMES = ("gaussian", "diagonal", "known_covariance")


class Run(NamedTuple):
    """A stream that was fed to the end."""

    state: MixtureState
    infos: list[AssimilateInfo]
    events: tuple[Event, ...]
    labels: IntArray  # (N,) as told by the call that took each point in


def nine_gaussians(n: int, seed: int = 0, spacing: float = 4.0) -> tuple[Array, IntArray]:
    """n points of nine unit Gaussians on a 3 x 3 grid, with the number of each point's Gaussian."""
    rng = np.random.default_rng(seed)
    z = rng.integers(9, size=n)
    return spacing * np.stack([z % 3, z // 3], axis=1) + rng.normal(size=(n, 2)), z


def far_clusters(n: int, d: int, k: int, seed: int = 0, gap: float = 30.0) -> tuple[Array, IntArray]:
    """n points of k unit Gaussians so far apart that every responsibility is zero or one."""
    rng = np.random.default_rng(seed)
    z = rng.integers(k, size=n)
    z[:k] = np.arange(k)
    centres = np.zeros((k, d))
    centres[:, 0] = gap * np.arange(k)
    return centres[z] + rng.normal(size=(n, d)), z


def plain_prior(family: str, d: int, within: float = 1.0, between: float = 100.0) -> Any:
    """An explicit prior for clusters of variance `within` with means of variance `between`."""
    ratio = within / between
    if family == "gaussian":
        return NormalInverseWishart(np.zeros(d), ratio, d + 20.0, 20.0 * within * np.eye(d))
    if family == "diagonal":
        return NormalInverseGamma(np.zeros(d), ratio, 10.0, 10.0 * within)
    return KnownCovariance(np.zeros(d), between, within)


def feed(
    settings: StreamSettings | MixtureState, x: Array, stops: Iterable[int] | int = (), through_bytes: bool = False
) -> Run:
    """Feed x to a new stream (or go on with a state) in calls that end at `stops`, or every so many rows.

    `through_bytes` saves and loads the state between calls.
    """
    state = initial_state(settings) if isinstance(settings, StreamSettings) else settings
    ends = range(stops, len(x), stops) if isinstance(stops, int) else stops
    infos = []
    start = 0
    for stop in [*ends, len(x)]:
        state, info = assimilate_inplace(state, x[start:stop])
        infos.append(info)
        start = stop
        if through_bytes:
            state, _ = from_bytes(to_bytes(state))
    events = tuple(event for info in infos for event in info.events)
    return Run(state, infos, events, np.concatenate([info.labels for info in infos]))


def mass_error(state: MixtureState) -> float:
    """How far masses and pruned mass are from the count of points, relative to it."""
    total = float(state.stats[0][: state.n_components].sum()) + state.pruned_mass
    return abs(total - state.decayed_count) / state.decayed_count


@pytest.fixture(scope="session")
def stream() -> SimpleNamespace:
    """The helpers above, as `stream.feed(...)` and so on: test modules cannot import one another."""
    return SimpleNamespace(
        feed=feed,
        nine=nine_gaussians,
        far=far_clusters,
        prior=plain_prior,
        mass_error=mass_error,
        settings=StreamSettings,
    )


@pytest.fixture(params=short_form(FAMILY_NAMES, ("gaussian", "diagonal")))
def family(request: pytest.FixtureRequest) -> str:
    """Each family's name in turn. That of full covariances and that of variances take unlike paths; a known covariance
    takes one of the two."""
    return str(request.param)
