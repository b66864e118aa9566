"""The automatic family: told by the domain of the warm-up's rows, else by prediction, and part of the state."""

import io

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_breast_cancer

from harness.short_form import longer, short_form
from shoal import StreamingDPMixture
from shoal.errors import OutsideDomainError, SettingError
from shoal.families import GammaPoisson
from shoal.families.auto import candidates_for
from shoal.mixture import StreamSettings
from shoal.sequential.family_choice import choose_family

N, WARM_UP = 700, 400


def rows(kind, n=N):
    """Rows of two clusters."""
    rng = np.random.default_rng(3)
    side = rng.integers(2, size=(n, 1))
    if kind == "poisson":
        return rng.poisson(np.where(side, [1.0, 20.0, 3.0], [8.0, 2.0, 3.0])).astype(float)
    if kind == "bernoulli":
        return (rng.random((n, 4)) < np.where(side, 0.9, 0.2)).astype(float)
    if kind == "dirichlet":
        return rng.dirichlet([5.0, 1.0, 1.0], n)
    if kind == "von_mises_fisher":
        x = np.where(side, 2.0, -2.0) + rng.normal(size=(n, 16))
        return x / np.linalg.norm(x, axis=1, keepdims=True)
    if kind == "diagonal":
        return 20.0 * side + rng.normal(size=(n, 12))
    if kind == "gaussian":
        return 20.0 * side + rng.normal(size=(n, 2)) @ np.array([[1.0, 0.95], [0.0, 0.3]])
    return 20.0 * side + rng.normal(size=(n, 3)) / np.sqrt(rng.chisquare(2.0, size=(n, 1)) / 2.0)  # student


KINDS = ("poisson", "bernoulli", "dirichlet", "von_mises_fisher", "diagonal", "gaussian", "student")


@pytest.mark.parametrize("kind", short_form(KINDS, ("poisson", "bernoulli", "diagonal", "gaussian", "student")))
def test_the_family_that_made_the_rows_is_chosen(kind):
    x = rows(kind, 250 if kind == "student" else N)  # its fits are slow
    choice = choose_family(x, StreamSettings(n_features=x.shape[1]))
    assert choice.family == kind
    assert choice.reason


def test_word_counts_of_uneven_texts_are_not_divided_into_a_poisson_component_for_every_two():
    rng = np.random.default_rng(0)
    words = rng.dirichlet(np.full(150, 0.05), 12)[rng.integers(12, size=240)]
    bursts = rng.gamma(1.0, 60.0, (240, 1)) * rng.gamma(0.2, 5.0, words.shape)
    x = rng.poisson(words * bursts).astype(float)
    assert choose_family(x, StreamSettings(n_features=150)).family == "negative_binomial"


def test_embeddings_and_domains_that_one_row_leaves():
    rng = np.random.default_rng(0)
    assert candidates_for(rng.normal(size=(50, 128)))[:2] == ("subspace", ())
    for kind in ("poisson", "bernoulli", "dirichlet", "von_mises_fisher"):
        x = rows(kind)
        x[3, 0] = -0.5
        assert "student" in candidates_for(x).others
    few = np.tile(rows("gaussian")[:1], (3, 1))
    assert choose_family(few, StreamSettings(n_features=2)).reason.endswith("too few to compare families")


def test_proportions_with_zeros_are_real_numbers_since_a_dirichlet_has_no_density_there():
    counts = np.random.default_rng(0).multinomial(20, [0.5, 0.3, 0.15, 0.05], N)
    assert (counts == 0).any()
    choice = choose_family(counts / 20.0, StreamSettings(n_features=4))
    assert choice.family == "gaussian"
    assert "some of them zero" in choice.reason


def test_whole_numbers_of_a_lattice_are_not_counts():
    """Deviation 1000 about far means: no Poisson law has it, and rounding says nothing."""
    rng = np.random.default_rng(1)
    x = np.round(50_000.0 + 1_000.0 * rng.normal(size=(N, 2)))
    choice = choose_family(x, StreamSettings(n_features=2))
    assert choice.family == "gaussian"
    assert "poisson" in choice.reason


def test_many_columns_of_whole_numbers():
    """Words of texts are counts. Pixels, most of which are 0 too, are measurements."""
    rng = np.random.default_rng(6)
    words = rng.poisson(0.05, (40, 128)).astype(float)
    words[0, 0] = 2.0
    assert candidates_for(words).default == "poisson"
    assert candidates_for(40.0 * words)[:2] == ("subspace", ())


def test_bounded_counts_that_no_poisson_law_has_are_real_numbers():
    """Grades from 0 to 16 that spread too little at either end: many Poisson components predict them, as groups no."""
    rng = np.random.default_rng(4)
    group = rng.integers(3, size=(N, 1))
    chance = np.array([[0.9] * 6, [0.1] * 3 + [0.9] * 3, [0.5] * 6])[group[:, 0]]
    choice = choose_family(rng.binomial(16, chance).astype(float), StreamSettings(n_features=6))
    assert choice.family == "gaussian"


def test_a_family_that_covers_all_groups_by_one_component_is_not_taken():
    """Two skewed groups that overlap: Student t tails hide them, and predict better."""
    data = load_breast_cancer()
    order = np.random.default_rng(1).permutation(len(data.target))
    choice = choose_family(data.data[order], StreamSettings(n_features=30))
    assert choice.family == "gaussian"
    assert "student" in choice.reason


def test_a_family_that_finds_groups_which_the_default_misses_may_have_more_components():
    """Six groups of counts: of the halves, `poisson` finds six in each and `gaussian` fewer, which agree less."""
    rng = np.random.default_rng(101)
    y = rng.integers(6, size=1_000)
    x = rng.poisson(rng.gamma(2.0, 4.0, (6, 6))[y]).astype(float)
    assert choose_family(x, StreamSettings(n_features=6)).family == "poisson"


def test_proportions_of_groups_that_gaussian_joins_are_dirichlet():
    """Six Dirichlet groups: in either half `gaussian` finds the same four, which agree as well as the six."""
    rng = np.random.default_rng(24)
    y = rng.integers(6, size=1_000)
    x = np.array([rng.dirichlet(parameters) for parameters in rng.gamma(1.0, 8.0, (6, 5))[y]])
    choice = choose_family(x, StreamSettings(n_features=5))
    assert choice.family == "dirichlet"
    assert "gaussian 4 and 4 components" in choice.reason


def test_a_skewed_dirichlet_is_not_two_gaussians():
    """Two Gaussians cover it, one of them the rows whose last share is near zero. They agree by .81."""
    choice = choose_family(
        np.random.default_rng(29).dirichlet([8.5, 4.8, 7.5, 2.0, 27.4, 0.4], size=1_000), StreamSettings(n_features=6)
    )
    assert choice.family == "dirichlet"
    assert "gaussian 2 and 2 components" in choice.reason


def test_components_that_hardly_come_back_do_not_take_the_place_of_others_that_come_back_less():
    """Of one Dirichlet both families find two, which agree by .06 and by .28."""
    choice = choose_family(rows("dirichlet")[:400], StreamSettings(n_features=3))
    assert choice.family == "dirichlet"
    assert "gaussian 2 and 2 components" in choice.reason


def test_weak_correlations_do_not_make_rows_of_independent_features():
    """A narrow family that is wrong by little splinters once there are many rows."""
    rng = np.random.default_rng(5)
    x = 9.0 * rng.integers(2, size=(1_000, 1)) + rng.normal(size=(1_000, 8)) + 0.5 * rng.normal(size=(1_000, 1))
    assert choose_family(x, StreamSettings(n_features=8)).family == "gaussian"


@pytest.mark.parametrize("kind", ["gaussian", longer("poisson"), longer("student"), longer("dirichlet")])
def test_the_choice_is_part_of_the_state_for_any_cut(kind):
    x = rows(kind)
    whole = StreamingDPMixture("auto", warmup_points=WARM_UP).fit(x)
    assert whole.family_ == kind
    parts = StreamingDPMixture("auto", warmup_points=WARM_UP)
    for start in range(0, N, 130):
        parts.partial_fit(x[start : start + 130])
        assert (parts.family_reason_ is None) == (start + 130 < WARM_UP)
    assert parts._fitted.to_bytes() == whole._fitted.to_bytes()
    file = io.BytesIO()
    parts.save(file)
    file.seek(0)
    loaded = StreamingDPMixture.load(file)
    assert (loaded.family, loaded.family_, loaded.family_reason_) == ("auto", kind, whole.family_reason_)
    assert loaded.partial_fit(x[:50])._fitted.to_bytes() == whole.partial_fit(x[:50])._fitted.to_bytes()
    assert_array_equal(loaded.predict(x), whole.predict(x))


def test_after_the_choice_it_is_the_named_family():
    """But for the ids, which live on from the provisional fits."""
    x = rows("poisson")
    auto = StreamingDPMixture("auto", warmup_points=WARM_UP, refinement=None).fit(x)
    named = StreamingDPMixture("poisson", warmup_points=WARM_UP, refinement=None).fit(x)
    assert_array_equal(np.sort(auto.masses_), np.sort(named.masses_))
    assert_array_equal(auto.score_samples(x), named.score_samples(x))


def test_a_point_outside_of_the_chosen_domain_is_refused_with_the_way_out():
    x = rows("poisson")
    model = StreamingDPMixture("auto", warmup_points=WARM_UP, refinement=None).fit(x)
    before = model._fitted.to_bytes()
    for call in (model.partial_fit, model.predict):
        with pytest.raises(
            OutsideDomainError, match=r"-1\.0 in column 0.*'poisson' was chosen automatically.*make another"
        ):
            call([[-1.0, 0.0, 0.0]])
    assert model._fitted.to_bytes() == before


def test_the_row_that_is_refused_is_counted_from_the_first_of_the_call():
    x = np.random.default_rng(0).integers(2, size=(600, 3)).astype(float)
    x[590, 1] = 0.5
    with pytest.raises(OutsideDomainError, match=r"row 590 holds 0\.5 in column 1.*chosen automatically") as error:
        StreamingDPMixture("auto", warmup_points=400, refinement=None).fit(x)
    assert error.value.row == 590


def test_a_prior_of_a_family_goes_with_its_name_only():
    with pytest.raises(SettingError, match="family is 'auto'"):
        StreamSettings(n_features=1, family="auto", prior=GammaPoisson([1.0], 1.0))
    settings = StreamSettings(n_features=2, family="auto")
    assert StreamSettings.from_json(settings.to_json()) == settings
    assert settings.undecided
