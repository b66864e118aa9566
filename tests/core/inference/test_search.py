"""A round of the search: which splits are tried together, and which are refused."""

import numpy as np

from shoal.families import NormalInverseGamma
from shoal.inference import Model, Search, State, StickPrior, WindowData, no_past
from shoal.inference.search import Attempt
from shoal.inference.split import Split


class RecordingSearch(Search):
    """A search whose proposals gain 4, 3, ..., 1 nats, and whose splits lower the bound until few are tried at once."""

    def proposals(self, state: State, attempt: Attempt = "halves") -> list[Split]:
        assert attempt == "halves", "no part is divided off while halves gain"
        self.tries: list[list[float]] = []
        return [Split(row, float(row + 1), None, 1.0) for row in range(len(state.mass))]

    def tried(self, state: State, splits: list[Split]) -> State:
        self.tries.append([split.gain for split in splits])
        return state._replace(bound=state.bound + (10.0 if len(splits) == 2 else -10.0))


def test_the_better_half_of_splits_that_fail_together_is_tried_and_the_worse_is_refused() -> None:
    group = np.repeat(np.arange(4), 100)
    x = np.random.default_rng(0).normal(size=(400, 2)) + 30.0 * np.eye(4, 2)[group] + 90.0 * (group == 3)[:, None]
    data, model = WindowData(x, np.ones(400)), Model(NormalInverseGamma.weak(2), StickPrior(1.0, 1.0))
    search = RecordingSearch(data, model, np.random.default_rng(0))
    stats = data.suffstats(model.family, [np.flatnonzero(group == k) for k in range(4)], [np.ones(100)] * 4)
    state = search.live_start(stats, no_past(model.family, 4, 4))
    after = search.round(state)
    assert search.tries == [[4.0, 3.0, 2.0, 1.0], [4.0, 3.0]]
    assert after.bound == state.bound + 10.0
    assert search.splits == 2
    may_split = [search.history.may_split(int(tag), float(m)) for tag, m in zip(state.tags, state.mass, strict=True)]
    assert may_split == [False, False, True, True]
