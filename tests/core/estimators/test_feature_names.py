"""Names of columns in both estimators, in scikit-learn's way, and in saved states."""

import io
import warnings
from typing import Any

import numpy as np
import pytest

from shoal import DPMixture, StreamingDPMixture
from shoal.errors import SettingError
from shoal.mixture import StreamSettings, from_bytes

pa = pytest.importorskip("pyarrow")
NAMES = ["cpu", "mem"]
X = np.random.default_rng(1).normal(size=(40, 2)) + np.array([[0.0, 0.0], [30.0, 30.0]])[np.arange(40) % 2]


def frame(names: list[str]) -> Any:
    """A data frame with these columns of X, by name."""
    return pa.table({name: X[:, NAMES.index(name)] for name in names})


@pytest.mark.parametrize("model", [StreamingDPMixture(), DPMixture(random_state=0)], ids=["stream", "batch"])
def test_a_data_frame_gives_the_names_and_others_are_refused(model: Any) -> None:
    model.fit(frame(NAMES))
    assert model.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(frame(NAMES[::-1]))
    with pytest.raises(ValueError, match="unseen at fit time"):
        model.predict(pa.table({"cpu": X[:, 0], "disk": X[:, 1]}))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        model.predict(X)
    model.fit(X)
    assert not hasattr(model, "feature_names_in_")


def test_names_are_saved_with_the_state_and_checked_after_a_load() -> None:
    model, file = StreamingDPMixture().fit(frame(NAMES)), io.BytesIO()
    model.save(file)
    state, _ = from_bytes(file.getvalue())
    assert state.settings.feature_names == tuple(NAMES)
    again = StreamingDPMixture.load(io.BytesIO(file.getvalue()))
    assert again.feature_names_in_.tolist() == NAMES
    with pytest.raises(ValueError, match="must be in the same order"):
        again.partial_fit(frame(NAMES[::-1]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.partial_fit(frame(NAMES))
    np.testing.assert_array_equal(again.means_, model.partial_fit(frame(NAMES)).means_)


def test_a_frame_gives_the_same_mixture_as_its_numbers() -> None:
    np.testing.assert_array_equal(StreamingDPMixture().fit(frame(NAMES)).means_, StreamingDPMixture().fit(X).means_)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a"], "holds 1 name, n_features is 2"), (["a", "a"], "'a' twice"), ("ab", "give a list of 2 texts"),
        ([1, "a"], r"feature_names\[0\] is 1"), (["", "a"], "1 to 200 characters"), (["b" * 201, "a"], "1 to 200"),
    ],
)  # fmt: skip
def test_names_out_of_range_are_refused(names: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        StreamSettings(n_features=2, feature_names=names)


def test_names_survive_json_and_settings_of_earlier_versions_have_none() -> None:
    named = StreamSettings(n_features=2, feature_names=("a", "b"))
    assert StreamSettings.from_json(named.to_json()) == named
    assert named.to_dict()["feature_names"] == ["a", "b"]
    values = named.to_dict()
    del values["feature_names"]
    assert StreamSettings.from_dict(values).feature_names is None
