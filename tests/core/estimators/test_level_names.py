"""Texts of categories: they are level numbers in the order in which they come, whatever holds them."""

import io
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from shoal import DPMixture, StreamingDPMixture
from shoal.errors import NotNumericError, SettingError
from shoal.mixture import StreamSettings
from shoal.points.levels import MOST_NAMED_LEVELS, OTHER_LEVEL, extended, numbers_of

REGIONS = np.array(["eu-west", "us-east", "ap-south"], dtype=object)
FAMILY = {"cpu": "gaussian", "region": "categorical"}
BY_COLUMN = {"0": "gaussian", "1": "categorical"}


@pytest.fixture(scope="module")
def rows():
    """Two groups: 120 rows of a number, and level numbers in the order of their first rows."""
    rng = np.random.default_rng(0)
    side = np.arange(120) % 2
    level = np.where(side == 0, 0, rng.integers(1, 3, size=120))
    level[:4] = [0, 1, 0, 2]
    return np.column_stack([10.0 * side + rng.normal(size=120), level])


@pytest.fixture(scope="module")
def frame(rows):
    return pd.DataFrame({"cpu": rows[:, 0], "region": REGIONS[rows[:, 1].astype(int)]})


def model(family):
    return StreamingDPMixture(family, warmup_points=60, refinement=None)


def test_texts_are_level_numbers_in_the_order_in_which_they_come(rows, frame):
    numbers = model(BY_COLUMN).fit(rows)
    for texts in (frame.to_numpy(dtype=object), frame.to_numpy(dtype=object).tolist()):
        named = model(BY_COLUMN).fit(texts)
        assert_array_equal(named.masses_, numbers.masses_)
        assert_array_equal(named.score_samples(texts), numbers.score_samples(rows))
        assert named.level_names_ == {1: list(REGIONS)}
    of_frame = model(FAMILY).fit(frame)
    assert_array_equal(of_frame.score_samples(frame), numbers.score_samples(rows))
    assert of_frame.level_names_ == {"region": list(REGIONS)}
    of_table = model(FAMILY).fit(pa.Table.from_pandas(frame))
    assert_array_equal(of_table.score_samples(pa.Table.from_pandas(frame)), numbers.score_samples(rows))
    assert of_table.level_names_ == {"region": list(REGIONS)}
    told = [told for of_one in of_frame.telling_features().values() for told in of_one if told.feature == "region"]
    assert {each.level for each in told} >= {"eu-west"}
    batch = DPMixture(FAMILY, method="vdp", random_state=0).fit(frame)
    by_number = DPMixture(BY_COLUMN, method="vdp", random_state=0).fit(rows)
    assert_array_equal(batch.predict(frame), by_number.predict(rows))
    assert "eu-west" in {told.level for of_one in batch.telling_features() for told in of_one}


def test_the_state_does_not_depend_on_cuts_nor_on_where_it_was_saved(frame):
    whole = model(FAMILY).fit(frame)
    parts = model(FAMILY)
    for start in range(0, 120, 7):
        parts.partial_fit(frame[start : start + 7])
        file = io.BytesIO()
        parts.save(file)
        file.seek(0)
        parts = StreamingDPMixture.load(file)
    assert parts._fitted.to_bytes() == whole._fitted.to_bytes()
    assert_array_equal(parts.predict(frame), whole.predict(frame))


@pytest.mark.parametrize("family", ["auto", "gaussian", {"cpu": "gaussian", "region": "poisson"}])
def test_texts_without_a_family_of_categories_are_refused_with_what_to_do(frame, family):
    for estimator in (StreamingDPMixture(family), DPMixture("gaussian" if family == "auto" else family, method="vdp")):
        with pytest.raises(NotNumericError, match=r"row 0 holds 'eu-west' in column .?region.*name the family"):
            estimator.fit(frame)


def test_the_names_of_levels_have_their_share_of_the_memory_however_they_come():
    texts = [f"host-{'x' * (i % 90)}-{i}" for i in range(300)]
    frame = pd.DataFrame({"cpu": np.arange(300.0), "host": texts})
    family, limits = (
        {"cpu": "gaussian", "host": "categorical"},
        {"max_state_bytes": 1 << 19, "warmup_points": 60, "refinement": None},
    )
    whole = StreamingDPMixture(family, **limits).fit(frame)
    kept = whole.level_names_["host"]
    assert 100 < len(kept) < 250
    assert sum(sys.getsizeof(text) for text in kept) <= (1 << 19) / 32 < sum(map(sys.getsizeof, texts))
    parts = StreamingDPMixture(family, **limits)
    for start in range(0, 300, 7):
        parts.partial_fit(frame[start : start + 7])
    assert parts.level_names_["host"] == kept
    wide = StreamSettings(n_features=2, family={"0": "gaussian", "1": "categorical"}, max_state_bytes=1 << 19)
    plain = StreamSettings(n_features=2, family={"0-1": "gaussian"}, max_state_bytes=1 << 19)
    assert (wide.level_names_budget_bytes, plain.level_names_budget_bytes) == ((1 << 19) // 32, 0)


def test_a_text_that_comes_later_gets_the_next_number_and_an_unknown_one_is_no_error(frame):
    learnt = model(FAMILY).fit(frame)
    before = learnt._fitted.to_bytes()
    unknown = pd.DataFrame({"cpu": [0.0], "region": ["moon"]})
    assert np.isfinite(learnt.score_samples(unknown)).all()
    assert learnt._fitted.to_bytes() == before
    assert learnt.partial_fit(unknown).level_names_ == {"region": [*REGIONS, "moon"]}


def test_texts_beyond_the_bound_are_one_other_level():
    texts = [f"user {i}" for i in range(MOST_NAMED_LEVELS + 3)]
    names = extended(extended((), texts[:5]), texts)
    assert names == tuple(texts[:MOST_NAMED_LEVELS])
    assert_array_equal(numbers_of(texts[-4:], names), [MOST_NAMED_LEVELS - 1, *[OTHER_LEVEL] * 3])


def test_a_column_of_texts_and_numbers_is_refused_with_its_row(frame):
    mixed = frame.astype(object)
    mixed.loc[5, "region"] = 3.0
    with pytest.raises(NotNumericError, match=r"row 5 holds 3\.0 in column 'region', whose other values are texts"):
        model(FAMILY).fit(mixed)
    with pytest.raises((NotNumericError, ValueError), match="eu-west"):
        model({"0-1": "gaussian"}).fit(frame)


def test_names_of_levels_are_a_setting_with_one_canonical_form():
    given = {"n_features": 2, "feature_names": ["cpu", "region"], "family": FAMILY}
    settings = StreamSettings.from_dict({**given, "level_names": {"region": ["eu", "us"]}})
    assert settings.level_names == {1: ("eu", "us")}
    assert StreamSettings.from_json(settings.to_json()) == settings
    for wrong in ({"cpu": ["a"]}, {"region": ["eu", "eu"]}, {"region": "eu"}, {"region": [""]}, ["eu"]):
        with pytest.raises(SettingError, match="level_names"):
            StreamSettings.from_dict({**given, "level_names": wrong})
