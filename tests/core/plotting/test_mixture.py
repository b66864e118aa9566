"""What `MixtureDisplay` draws is the model: ellipses, colours, densities and bars, checked by their artists."""

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex
from matplotlib.patches import Ellipse
from sklearn.exceptions import NotFittedError

from shoal import DPMixture, SettingError, ShapeError, StreamingDPMixture
from shoal.plotting import MixtureDisplay, colour_of


def outline(ellipse: Ellipse) -> np.ndarray:
    """(12, 2) points of an ellipse in the units of the axes: matplotlib draws a unit circle through this transform."""
    angle = np.linspace(0.0, 2.0 * np.pi, 12, endpoint=False)
    return np.asarray(ellipse.get_patch_transform().transform(np.column_stack([np.cos(angle), np.sin(angle)])))


@pytest.mark.parametrize("deviations", [1.0, 2.0])
def test_points_of_an_ellipse_are_so_many_deviations_from_the_mean(
    stream: StreamingDPMixture, points: np.ndarray, deviations: float
) -> None:
    """By the Mahalanobis distance within the two features, from the estimator's own moments."""
    display = MixtureDisplay.from_estimator(stream, points, dims=(0, 2), deviations=deviations)
    assert set(display.ellipses_) == set(stream.component_ids_.tolist())
    for row, component in enumerate(stream.component_ids_.tolist()):
        ellipse = display.ellipses_[component]
        covariance = stream.covariances_[row][np.ix_([0, 2], [0, 2])]
        apart = outline(ellipse) - stream.means_[row, [0, 2]]
        distance = np.sqrt(np.einsum("nd,de,ne->n", apart, np.linalg.inv(covariance), apart))
        assert ellipse.center == pytest.approx(stream.means_[row, [0, 2]])
        axes = sorted([ellipse.width, ellipse.height])
        assert axes == pytest.approx(2.0 * deviations * np.sqrt(np.linalg.eigvalsh(covariance)))
        assert distance == pytest.approx(np.full(12, deviations))


def test_the_default_plane_shows_where_the_means_differ_most(stream: StreamingDPMixture, points: np.ndarray) -> None:
    """Weighted variance of the drawn centres: as large as that of any two orthogonal directions (PCA by SVD)."""
    display = MixtureDisplay.from_estimator(stream)
    centres = np.array([display.ellipses_[one].center for one in stream.component_ids_.tolist()])
    share = stream.masses_ / stream.masses_.sum()
    state = stream._fitted.state
    z = (stream.means_ - state.location) / state.scale
    values = np.linalg.svd(np.sqrt(share)[:, None] * (z - share @ z), compute_uv=False)
    drawn = share @ (centres - share @ centres) ** 2
    assert drawn == pytest.approx(values[:2] ** 2)
    assert display.ax_.get_xlabel().startswith("first direction: mostly feature ")


def test_points_and_ellipses_have_the_colour_of_their_cluster(stream: StreamingDPMixture, points: np.ndarray) -> None:
    display = MixtureDisplay.from_estimator(stream, points, n_clusters=2, max_points=100)
    shown = points[np.linspace(0, len(points) - 1, 100).astype(int)]
    wanted = stream.predict(shown, level="cluster", n_clusters=2)
    assert [to_hex(one) for one in display.points_.get_facecolors()] == [colour_of(one) for one in wanted]
    clusters = stream.clusters(2)
    for component, ellipse in display.ellipses_.items():
        cluster = int(clusters.of_components(np.array([component]))[0])
        assert to_hex(ellipse.get_edgecolor()) == colour_of(cluster)
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert [int(text.split(" · ")[0]) for text in texts] == [one.id for one in clusters.clusters]


def test_small_shares_have_one_decimal_and_large_ones_none() -> None:
    """Of 3,000 points, 25 lie far off: 0.8 %, not 0.834 %."""
    x = np.random.default_rng(0).normal(size=(3000, 2))
    x[::120] += 60.0
    display = MixtureDisplay.from_estimator(StreamingDPMixture(family="diagonal").fit(x), n_clusters=2)
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert [text.split(" · ")[1] for text in texts] == ["99 %", "0.8 %"]


def test_colours_are_those_of_the_component_on_request_and_of_a_dark_style(stream: StreamingDPMixture) -> None:
    with pyplot.style.context("dark_background"):
        display = MixtureDisplay.from_estimator(stream, color_by="component")
    for component, ellipse in display.ellipses_.items():
        assert to_hex(ellipse.get_edgecolor()) == colour_of(component, dark=True)


def test_labels_stand_in_place_of_ids(stream: StreamingDPMixture) -> None:
    first = int(stream.component_ids_[0])
    display = MixtureDisplay.from_estimator(stream, labels={first: "idle"})
    texts = {text.get_text() for text in display.ax_.texts}
    assert texts == {"idle"} | {str(one) for one in stream.component_ids_.tolist()[1:]}
    assert display.plot(names=False).ax_.texts[:] == []


def test_names_with_dollars_and_of_features_are_shown_as_they_are(batch: DPMixture, points: np.ndarray) -> None:
    display = MixtureDisplay.from_estimator(
        batch, dims=("cost $", "$x$"), feature_names=["cost $", "$x$", "y"], labels={0: "$5 to $6"}
    )
    display.figure_.canvas.draw()  # a formula that cannot be read would raise
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == (r"cost \$", r"\$x\$")
    with pytest.raises(ShapeError, match="2 feature names are given for 3 features"):
        MixtureDisplay.from_estimator(batch, feature_names=["a", "b"])


def test_a_long_name_of_a_feature_stays_within_the_figure(batch: DPMixture) -> None:
    names = [
        "temperature of the bearing on the side of the gear box " * 2,
        "rotations of the main shaft a minute " * 3,
        "y",
    ]
    display = MixtureDisplay.from_estimator(batch, dims=names[:2], feature_names=names)
    display.figure_.canvas.draw()
    for axis in (display.ax_.xaxis, display.ax_.yaxis):
        box = axis.label.get_window_extent().extents
        assert box.min() >= 0.0
        assert (box <= np.tile(display.figure_.bbox.size, 2)).all()


def test_densities_of_one_feature_integrate_to_the_weights() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, 300), rng.normal(12, 0.5, 100)])[rng.permutation(400), None]
    model = StreamingDPMixture(warmup_points=200).fit(x)
    display = MixtureDisplay.from_estimator(model)  # without points the grid reaches four deviations from every mean
    for row, component in enumerate(model.component_ids_.tolist()):
        grid, density = display.lines_[component].get_data()
        # 1 % of a Student t may lie outside of the grid, and the trapezoid rule of 400 steps errs by less.
        assert np.trapezoid(density, grid) == pytest.approx(model.weights_[row], rel=0.02)
    total = display.ax_.lines[-1]
    assert np.log(total.get_ydata()) == pytest.approx(model.score_samples(total.get_xdata()[:, None]))


def test_counts_are_bars_of_telling_features() -> None:
    rng = np.random.default_rng(3)
    topics = rng.dirichlet(np.full(12, 0.1), size=3)
    x = np.array([rng.multinomial(30, topics[rng.integers(3)]) for _ in range(400)])
    model = DPMixture("multinomial", random_state=0).fit(x)
    display = MixtureDisplay.from_estimator(model, x, max_components=2)
    telling = model.telling_features()
    assert len(display.axes_) == 2
    for component, axes in enumerate(display.axes_):  # numbered by falling mass
        assert [bar.get_width() for bar in axes.patches] == [one.value for one in telling[component]]
        elsewhere = np.asarray(axes.collections[0].get_offsets())[:, 0]
        assert elsewhere == pytest.approx(np.array([one.rest for one in telling[component]]))
        names = [text.get_text() for text in axes.get_yticklabels()]
        assert names == [f"feature {one.feature}" for one in telling[component]]
        assert to_hex(axes.patches[0].get_facecolor()) == colour_of(component)
    with pytest.raises(SettingError, match="has no coordinates"):
        MixtureDisplay.from_estimator(model, dims=(0, 1))
    figure = pyplot.figure()
    with pytest.raises(SettingError, match="axes of a grid"):
        display.plot(ax=figure.add_axes((0.1, 0.1, 0.8, 0.8)))


def test_columns_of_several_kinds_have_bars_that_fit_each_by_itself() -> None:
    rng = np.random.default_rng(5)
    kind = rng.integers(2, size=600)
    cpu = np.array([20.0, 8000.0])[kind] + rng.normal(size=600)
    x = np.column_stack([cpu, rng.poisson(np.array([1, 30])[kind]), kind])
    model = StreamingDPMixture({"0": "gaussian", "1": "poisson", "2": "categorical"}, refinement=None).fit(x)
    display = MixtureDisplay.from_estimator(model, x)
    seen = set()
    for component, axes in zip(display.ids[np.argsort(-display.weights)], display.axes_, strict=True):
        for one, bar in zip(model.telling_features()[int(component)], axes.patches, strict=True):
            seen.add(one.feature)
            if one.level is not None:
                assert bar.get_width() == one.value
            elif one.value > one.rest:
                assert bar.get_width() == 1.0
            else:
                assert bar.get_width() == pytest.approx(one.value / one.rest)
        assert len(axes.texts) == len(axes.patches)
    assert seen == {0, 1, 2}


def test_it_draws_into_given_axes_and_shows_the_middle_of_the_points(batch: DPMixture, points: np.ndarray) -> None:
    figure, (left, right) = pyplot.subplots(1, 2)
    far = np.vstack([points[:400], [[1e6, 0.0, 0.0]]])  # one outlier does not shrink the rest to a dot
    display = MixtureDisplay.from_estimator(batch, far, dims=(0, 1), ax=right)
    assert (display.figure_, display.ax_, display.axes_) == (figure, right, [right])
    assert right.get_xlim()[1] < 50.0
    assert not left.patches


@pytest.mark.parametrize(
    ("dims", "message"),
    [((0,), "give two"), ((0, 3), "feature 3 does not exist"), (("a", "b"), "the features have no names")],
)
def test_features_that_do_not_exist_are_refused(batch: DPMixture, dims: tuple[object, ...], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        MixtureDisplay.from_estimator(batch, dims=dims)


def test_what_cannot_be_plotted_is_refused(batch: DPMixture) -> None:
    with pytest.raises(SettingError, match="give a fitted StreamingDPMixture"):
        MixtureDisplay.from_estimator(object())
    with pytest.raises(NotFittedError):
        MixtureDisplay.from_estimator(StreamingDPMixture())
    with pytest.raises(SettingError, match="color_by"):
        MixtureDisplay.from_estimator(batch, color_by="shape")
    with pytest.raises(SettingError, match="choose clusters"):
        MixtureDisplay.from_estimator(batch, color_by="component", n_clusters=2)
