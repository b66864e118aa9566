"""The race of priors: rounds go on from where they ended, and the winner is that of a race run again."""

from types import SimpleNamespace

import numpy as np
import pytest

from shoal.families import FAMILIES, AnyFamily
from shoal.points.rows import SparseRows
from shoal.sequential.prior import race as trials
from shoal.sequential.prior.choose import choose_prior
from shoal.sequential.prior.race import Trials, best_of, n_scored, rounds


@pytest.mark.parametrize("family", ["known_covariance", "diagonal", "gaussian", "poisson"])
def test_a_trial_that_goes_on_is_one_that_starts_over(family: str, stream: SimpleNamespace) -> None:
    """To the bit, stage after stage, with other priors tried in between, in the same arrays; also where the first rows
    had no room for the births that all of them have."""
    rng = np.random.default_rng(2)
    x = rng.poisson(5.0, size=(400, 3)).astype(float) if family == "poisson" else rng.normal(size=(400, 3))
    settings = stream.settings(n_features=3, family=family, max_components=1_000)
    kind = FAMILIES[family]
    if family == "poisson":
        priors = kind.candidate_priors(x, True)[:3]  # type: ignore[attr-defined]
    else:
        priors = [kind.weak(3, variance, mean_strength=variance, dof=100.0) for variance in (1e-6, 1.0, 10.0)]
    tried = Trials(settings, priors[0], x)
    held: list[trials.TrialProgress | None] = [None] * len(priors)
    began_again = []
    for end in (50, 130, 200):
        scores = []
        for i, prior in enumerate(priors):
            scores.append(tried.run(prior, end, held[i]).score)
            held[i] = tried.progress()
        began_again.append([one is None for one in held])
    resumed = [tried.run(prior, len(x), own) for prior, own in zip(priors, held, strict=True)]
    for prior, trial in zip(priors, resumed, strict=True):
        rebuilt = Trials(settings, prior, x).run(prior, len(x))
        assert trial.score == rebuilt.score
        np.testing.assert_array_equal(trial.labels, rebuilt.labels)
    if family != "poisson":
        assert began_again == [[True, False, False]] * 3, "both ways are walked"
    assert len({trial.score for trial in resumed}) > 1


@pytest.mark.parametrize(
    ("n_rows", "n_priors", "expected"),
    [
        (1_000, 24, [(250, 12), (500, 5)]),
        (1_000, 28, [(250, 14), (500, 6)]),
        (4_000, 12, [(1_000, 6), (2_000, 3)]),
        (192, 7, [(48, 6), (96, 2)]),
        (191, 24, [(95, 5)]),  # a quarter would be 47 rows
        (1_000, 6, [(500, 2)]),  # as few as a first stage keeps
        (33, 1, [(16, 2)]),
    ],
)
def test_halving_stages(n_rows: int, n_priors: int, expected: list[tuple[int, int]]) -> None:
    assert rounds(n_rows, n_priors) == expected


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("family", ["diagonal", "gaussian"])
def test_the_prior_chosen_is_the_winner_of_stages_run_again(family: str, times: int, stream: SimpleNamespace) -> None:
    """By another road: every trial begins again, and all are held at once."""
    settings = stream.settings(n_features=2, family=family)
    x, _ = stream.nine(400)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    weak = FAMILIES[family].weak
    priors: list[AnyFamily] = [
        weak(2, v, mean_strength=m, dof=40.0) for v in (0.01, 0.03, 0.1, 0.3, 1.0) for m in (0.02, 0.2)
    ]
    priors = [prior for prior in priors for _ in range(times)]  # of equals the first, also where only some are kept
    found, trial = best_of(settings, priors, z)
    kept = np.arange(len(priors))
    for end, n_kept in rounds(len(z), len(priors)):
        scores = [Trials(settings, priors[i], z).run(priors[i], end).score for i in kept]
        kept = np.sort(kept[np.argsort([-score for score in scores], kind="stable")[:n_kept]])
    whole = [Trials(settings, priors[i], z).run(priors[i], len(z)) for i in kept]
    best = int(np.argmax([one.score for one in whole]))
    assert (found, trial.score) == (kept[best], whole[best].score)
    np.testing.assert_array_equal(trial.labels, whole[best].labels)


def test_halving_spares_most_of_the_rows_and_loses_little(
    stream: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside all priors over all rows, on eight draws of nine Gaussians and one feature that tells nothing: less than a
    tenth of a nat a row is lost (births are a matter of luck: by as much differ scores of priors next to each other),
    three hundredths on average, and two fifths of the work are spared."""
    settings, taken = stream.settings(n_features=3, family="gaussian"), [0]
    run = Trials.run

    def counted(self: Trials, prior: AnyFamily, n: int, held: trials.TrialProgress | None = None) -> trials.Trial:
        taken[0] += n - (0 if held is None else len(held.labels))
        return run(self, prior, n, held)

    monkeypatch.setattr(Trials, "run", counted)
    weak = FAMILIES["gaussian"].weak
    priors: list[AnyFamily] = [
        weak(3, v, mean_strength=v, dof=dof) for v in 2.0 ** np.arange(-6, 0) for dof in (16.0, 32.0, 64.0, 128.0)
    ]
    lost, cache = [], []
    for seed in range(8):
        x, _ = stream.nine(1_000, seed=seed)
        x = np.column_stack([x, np.random.default_rng(seed).normal(size=len(x))])
        z = (x - x.mean(axis=0)) / x.std(axis=0)
        taken[0] = 0
        found = best_of(settings, priors, z)[1].score
        cache.append(taken[0])
        lost.append(max(run(Trials(settings, prior, z), prior, len(z)).score for prior in priors) - found)
    assert min(lost) >= 0.0
    assert max(lost) <= 0.1 * n_scored(1_000)
    assert np.mean(lost) <= 0.03 * n_scored(1_000)
    assert max(cache) <= 0.6 * len(priors) * 1_000


def test_a_trial_that_would_keep_too_much_starts_over(stream: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = stream.settings(n_features=2, family="diagonal")
    x, _ = stream.nine(300)
    kept = choose_prior(x, settings)
    monkeypatch.setattr(trials, "MOST_KEPT_BYTES", 0)
    tried = Trials(settings, kept.prior, (x - kept.location) / kept.scale)
    tried.run(kept.prior, 150)
    assert tried.progress() is None
    assert choose_prior(x, settings).prior == kept.prior


def test_of_sparse_counts_with_many_components_a_trial_goes_on_alike(stream: SimpleNamespace) -> None:
    """Rows in compressed form, and so many components and features that bounds are worked out."""
    rng = np.random.default_rng(4)
    rates = rng.gamma(0.2, 4.0, size=(30, 60))
    x = rng.poisson(rates[rng.integers(30, size=600)]).astype(float)
    settings = stream.settings(n_features=60, family="multinomial")
    prior = FAMILIES["multinomial"].candidate_priors(x, True)[0]  # type: ignore[attr-defined]
    tried = Trials(settings, prior, SparseRows.of(x))
    tried.run(prior, 300)
    held = tried.progress()
    assert held is not None
    assert len(held.kept[0]) > 10
    resumed, rebuilt = tried.run(prior, 600, held), Trials(settings, prior, SparseRows.of(x)).run(prior, 600)
    assert resumed.score == rebuilt.score
    np.testing.assert_array_equal(resumed.labels, rebuilt.labels)
