"""Settings: what is refused and how it is said, and the canonical text."""

import json
from dataclasses import replace

import numpy as np
import pytest

from shoal.errors import SettingError
from shoal.families import KnownCovariance, NormalInverseWishart
from shoal.mixture import StreamSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_features", 0),
        ("n_features", 2.0),
        ("n_features", True),
        ("n_features", None),
        ("family", "cauchy"),
        ("family", 3),
        ("method", "vdp"),
        ("prior", "weak"),
        ("prior", {"mean": [0.0]}),
        ("concentration", 0.0),
        ("concentration", float("nan")),
        ("concentration", "1"),
        ("concentration", True),
        ("birth_threshold", 0.0),
        ("birth_threshold", 1.0),
        ("responsibility_floor", 0.2),
        ("prune_threshold", -0.1),
        ("merge_threshold", 1.0),
        ("check_schedule", "never"),
        ("half_life", 0.5),
        ("half_life", float("inf")),
        ("warmup_points", 0),
        ("window", -1),
        ("window_bytes", -1),
        ("max_components", 0),
        ("max_state_bytes", 100),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(SettingError, match=name):
        StreamSettings(**({"n_features": 2} | {name: value}))  # type: ignore[arg-type]


def test_an_explicit_prior_must_fit() -> None:
    prior = KnownCovariance(np.zeros(3), 1.0, 1.0)
    with pytest.raises(SettingError, match="family"):
        StreamSettings(n_features=3, prior=prior)
    with pytest.raises(SettingError, match="3 features"):
        StreamSettings(n_features=2, prior=prior, family="known_covariance")


def test_numpy_numbers_are_taken_and_become_plain_ones() -> None:
    settings = StreamSettings(n_features=np.int64(4), concentration=np.float32(0.5), half_life=100)  # type: ignore[arg-type]
    assert settings == StreamSettings(n_features=4, concentration=0.5, half_life=100.0)
    assert type(settings.n_features) is int
    assert type(settings.half_life) is float


def test_floor_and_pair_rule_follow_the_method() -> None:
    assert [StreamSettings(n_features=1, method=m).floor for m in ("default", "sva", "sva-pm")] == [1e-3, 1e-12, 1e-12]
    assert StreamSettings(n_features=1, responsibility_floor=0).floor == 0.0
    rules = [StreamSettings(n_features=1, method=m).pair_rule for m in ("default", "sva", "sva-pm")]
    assert rules == ["entropy", "none", "overlap"]


@pytest.mark.parametrize("explicit", [False, True])
def test_text_reads_back_equal_and_is_canonical(explicit: bool) -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    prior = NormalInverseWishart(rng.normal(size=3), 0.1 / 3, 5.3, root @ root.T + np.eye(3)) if explicit else "auto"
    settings = StreamSettings(n_features=3, prior=prior, concentration=1 / 3, half_life=1e4)
    text = settings.to_json()
    back = StreamSettings.from_json(text)
    assert back == settings
    assert back.to_json() == text
    assert StreamSettings.from_json(text.encode()) == settings
    shuffled = json.dumps(dict(reversed(json.loads(text).items())), indent=2)
    assert StreamSettings.from_json(shuffled).to_json() == text


def test_what_is_left_out_takes_its_default() -> None:
    assert StreamSettings.from_json('{"n_features": 5}') == StreamSettings(n_features=5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "{",
        "{}",
        '{"n_features": 2, "colour": 1}',
        '{"n_features": 2, "prior": {"mean": [0, 0]}}',
        '{"n_features": 2, "prior": {"mean": [0, "x"], "mean_strength": 1, "dof": 4, "scale": [[1, 0], [0, 1]]}}',
        '{"n_features": 2, "prior": {"mean": [[0], [0, 1]], "mean_strength": 1, "dof": 4, "scale": 1}}',
        '{"n_features": 2, "concentration": NaN}',
        '{"n_features": 2, "family": ["gaussian"], "prior": {}}',
        "[" * 100_000,
        '{"n_features": 2, "concentration": 1' + "0" * 400 + "}",
        '{"n_features": 1, "prior": {"mean": [1' + "0" * 400 + '], "mean_strength": 1, "dof": 4, "scale": [[1]]}}',
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        StreamSettings.from_json(text)


def test_a_live_stream_keeps_its_shape() -> None:
    settings = StreamSettings(n_features=2)
    assert settings.with_changes(concentration=2.0, n_features=2) == replace(settings, concentration=2.0)
    for change in ({"n_features": 3}, {"family": "diagonal"}, {"method": "sva"}, {"warmup_points": 10}):
        with pytest.raises(SettingError, match="live stream"):
            settings.with_changes(**change)
    with pytest.raises(SettingError, match="live stream"):
        settings.with_changes(prior=NormalInverseWishart(np.zeros(2), 1.0, 4.0, np.eye(2)))
    with pytest.raises(SettingError, match="colour"):
        settings.with_changes(colour=1)
    with pytest.raises(SettingError, match="concentration"):
        settings.with_changes(concentration=-1)


def test_settings_are_frozen() -> None:
    with pytest.raises(AttributeError):
        StreamSettings(n_features=2).concentration = 3.0  # type: ignore[misc]


@pytest.mark.parametrize("family", ["dirichlet", "dirichlet_gradient", "von_mises_fisher"])
def test_family_that_needs_two_features_says_that_the_points_have_one(family):
    """The error named an argument of the prior, which the user had not given."""
    with pytest.raises(SettingError, match="needs 2 features or more, but the points have 1 feature;"):
        StreamSettings(family=family, n_features=1)


def test_family_of_columns_that_needs_two_of_them_says_so():
    with pytest.raises(SettingError, match="'dirichlet' needs 2 features or more, but it is given 1 feature;"):
        StreamSettings(family={0: "dirichlet", 1: "poisson"}, n_features=2)
