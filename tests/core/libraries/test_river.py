"""The clusterer for river: river's own checks, and the same mixture as the estimator's."""

import copy
import pickle
import runpy
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import checks, compose, datasets, preprocessing
from river.checks import common

import shoal.river
from shoal import InputError, SettingError, StreamingDPMixture
from shoal.river import NO_COMPONENT, DPMixtureClusterer

CENTRES = np.array([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0], [0.0, 9.0, 0.0]])
NAMES = ("a", "b", "c")


def drawn(n: int, seed: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return CENTRES[rng.integers(3, size=n)] + rng.normal(size=(n, 3))


def dictionaries(table: np.ndarray) -> list[dict[str, float]]:
    """Rows as dictionaries, without what is missing."""
    return [{name: v for name, v in zip(NAMES, row, strict=True) if v == v} for row in table.tolist()]


def learnt(rows: list[dict[str, float]], **settings: Any) -> DPMixtureClusterer:
    model = DPMixtureClusterer(**settings)
    for row in rows:
        model.learn_one(row)
    return model


def test_the_general_checks_of_river_pass() -> None:
    checks.check_estimator(DPMixtureClusterer())


DATASET_CHECKS = (
    common.check_learn_one,
    common.check_pickling,
    common.check_shuffle_features_no_impact,
    common.check_emerging_features,
    common.check_disappearing_features,
    common.check_radically_disappearing_features,
    common.check_predict_one_before_any_learn,
    common.check_no_state_aliasing_with_input,
    common.check_clone_is_independent,
    common.check_bounded_memory_growth,
)
"""River gives these to other estimators than clusterers."""


@pytest.mark.parametrize("check", DATASET_CHECKS, ids=lambda check: check.__name__)
def test_the_checks_of_river_on_a_data_set_pass(check: Any) -> None:
    rows = list(datasets.Phishing().take(80))
    check(DPMixtureClusterer(family="diagonal", warmup_points=40), rows)


def test_it_learns_what_the_estimator_learns() -> None:
    table = drawn(400)
    model = learnt(dictionaries(table), warmup_points=100)
    peer = StreamingDPMixture(warmup_points=100, missing="marginal").partial_fit(table)
    assert model.features == NAMES
    assert [model.predict_one(row) for row in dictionaries(table)] == peer.predict(table).tolist()
    assert model.score_one({"a": 1.0, "c": 2.0}) == peer.score_samples([[1.0, np.nan, 2.0]])[0]
    assert model.novelty_one({"a": 90.0, "b": 90.0, "c": 0.0}) > 0.99


def test_many_rows_at_once_are_the_same_rows_one_by_one() -> None:
    table = drawn(300)
    table[::7, 1] = np.nan
    many = DPMixtureClusterer(family="diagonal", warmup_points=50)
    for part in np.array_split(table, 5):
        many.learn_many(pd.DataFrame(part, columns=NAMES))
    one = learnt(dictionaries(table), family="diagonal", warmup_points=50)
    assert pickle.dumps(many.mixture._fitted.to_bytes()) == pickle.dumps(one.mixture._fitted.to_bytes())
    assert many.predict_many(pd.DataFrame(table, columns=NAMES)).tolist() == [
        *map(one.predict_one, dictionaries(table))
    ]


def test_a_copy_goes_on_by_itself() -> None:
    model = learnt(dictionaries(drawn(150)), warmup_points=100)
    masses = model.mixture.masses_.copy()
    copy.copy(model).learn_many(pd.DataFrame(drawn(20, seed=6), columns=NAMES))
    np.testing.assert_array_equal(model.mixture.masses_, masses)


def test_a_feature_that_appears_in_the_warmup_was_missing_before() -> None:
    table = drawn(120)
    table[:40, 2] = np.nan
    model = learnt(dictionaries(table), family="diagonal", warmup_points=60)
    peer = StreamingDPMixture("diagonal", warmup_points=60, missing="marginal").partial_fit(table)
    np.testing.assert_array_equal(model.mixture.means_, peer.means_)


def test_a_feature_that_appears_later_is_ignored_and_said() -> None:
    rows = dictionaries(drawn(150))
    model = learnt(rows, warmup_points=100)
    before = model.mixture.masses_.sum()
    model.learn_one({**rows[0], "new": 3.0})
    assert model.ignored_features == {"new"}
    assert model.features == NAMES
    assert model.mixture.masses_.sum() == pytest.approx(before + 1)


def test_counts_that_a_row_lacks_are_zero() -> None:
    rng = np.random.default_rng(3)
    counts = rng.poisson(np.where(rng.random((120, 1)) < 0.5, [6.0, 0.2, 0.2], [0.2, 6.0, 0.2]))
    rows = [{name: int(v) for name, v in zip(NAMES, row, strict=True) if v} for row in counts]
    model = learnt(rows, family="poisson", warmup_points=50)
    peer = StreamingDPMixture("poisson", warmup_points=50).partial_fit(counts)
    np.testing.assert_array_equal(model.mixture.masses_, peer.masses_)
    assert model.predict_one(rows[0]) == peer.predict(counts[:1])[0]


def test_it_stands_at_the_end_of_a_pipeline() -> None:
    pipeline = compose.Pipeline(preprocessing.StandardScaler(), DPMixtureClusterer(warmup_points=50))
    for row in dictionaries(drawn(120)):
        pipeline.predict_one(row)
        pipeline.learn_one(row)
    assert len(pipeline["DPMixtureClusterer"].mixture.component_ids_) >= 1


EMPTY: tuple[dict[str, Any], ...] = ({}, {"new": 1.0}, {"a": None}, {"a": float("nan"), "b": None})


def test_a_row_without_a_value_is_passed_over_and_gets_the_heaviest_component() -> None:
    """It was an error, which ended a loop over rows with varying features."""
    model = DPMixtureClusterer(family="diagonal", warmup_points=60)
    peer = learnt(dictionaries(drawn(120)), family="diagonal", warmup_points=60)
    model.learn_one({})
    assert model.predict_one({}) == NO_COMPONENT
    for i, row in enumerate(dictionaries(drawn(120))):
        model.learn_one(row)
        for empty in EMPTY if i >= 60 else (EMPTY[0], *EMPTY[2:]):
            model.learn_one(empty)
    np.testing.assert_array_equal(model.mixture.masses_, peer.mixture.masses_)
    assert model.ignored_features == {"new"}
    heaviest = model.mixture.component_ids_[model.mixture.weights_.argmax()]
    for empty in EMPTY:
        assert (model.predict_one(empty), model.score_one(empty)) == (heaviest, 0.0)
        assert model.novelty_one(empty) == pytest.approx(1 / (1 + model.mixture.masses_.sum()))
    table = pd.DataFrame([{"a": 1.0}, {"a": None}])
    assert model.predict_many(table).tolist() == [model.predict_one({"a": 1.0}), heaviest]


@pytest.mark.parametrize("family", ["student", "auto"])
def test_a_family_without_missing_values_learns_whole_rows_and_refuses_others(family: str) -> None:
    """It refused every row, and advised a setting that the clusterer does not have."""
    rows = dictionaries(drawn(80))
    model = learnt(rows, family=family, warmup_points=50)
    peer = StreamingDPMixture(family, warmup_points=50).partial_fit(drawn(80))
    assert [model.predict_one(row) for row in rows] == peer.predict(drawn(80)).tolist()
    for ask in (model.learn_one, model.predict_one, model.score_one):
        with pytest.raises(InputError, match=f"no feature 'b', and family '{family}' takes no missing values"):
            ask({"a": 1.0, "c": 2.0})
    with pytest.raises(InputError, match="a row has no feature 'c'"):
        learnt([{"a": 1.0, "b": 2.0}, rows[0]], family=family)


def test_no_rows_get_no_predictions() -> None:
    assert learnt(dictionaries(drawn(5))).predict_many(pd.DataFrame()).tolist() == []


def test_nothing_learnt_predicts_nothing() -> None:
    model = DPMixtureClusterer()
    assert model.predict_one({"a": 1.0}) == NO_COMPONENT
    assert model.novelty_one({"a": 1.0}) == 1.0
    assert np.isnan(model.score_one({"a": 1.0}))


def test_errors_say_what_was_given() -> None:
    with pytest.raises(SettingError, match="absent is 'none'"):
        DPMixtureClusterer(absent="none")  # type: ignore[arg-type]
    model = learnt(dictionaries(drawn(5)))
    with pytest.raises(InputError, match="feature 'b' is 'red'"):
        model.learn_one({"a": 1.0, "b": "red"})
    model.learn_one({"a": 1.0, "b": 2.0})
    assert model.mixture.masses_.sum() == pytest.approx(6.0)


def test_without_river_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(ImportError, match=r"pip install 'shoal\[river\]'"):
        runpy.run_path(shoal.river.__file__)
