"""Fits of data sets on disk: bounds, sums, predictions, and the same bits for any workers, also killed ones."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as arrow
import pyarrow.parquet as parquet
import pytest
from scipy.special import digamma, softmax
from sklearn.base import clone

from harness.losing_workers import KilledProcesses
from harness.short_form import longer
from shoal import DPMixture, StreamingDPMixture
from shoal.errors import InputError, NotFiniteError, OutsideDomainError, SettingError, ShapeError
from shoal.families import GammaPoisson, NormalInverseWishart
from shoal.families.natural_statistics import origin_for
from shoal.mixture import bound_of_responsibilities
from shoal.offline import open_dataset
from shoal.offline.passes import CellTask, Rows, Work, leaf_sums, leaf_sums_of_block, sampled
from shoal.runtime.executors import InProcess
from shoal.variational import planes_of

FAMILY = NormalInverseWishart([4.0, 4.0], 0.05, 5.0, np.eye(2))


def grid(n: int, seed: int = 0) -> np.ndarray:
    """n points of nine unit Gaussians, five apart."""
    rng = np.random.default_rng(seed)
    z = rng.integers(9, size=n)
    return 5.0 * np.stack([z % 3, z // 3], axis=1) + rng.normal(size=(n, 2))


def few_clusters(n: int, seed: int = 0) -> np.ndarray:
    """n points of three unit Gaussians, whose fit takes a third of the time."""
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    return 5.0 * np.stack([z, z // 2], axis=1) + rng.normal(size=(n, 2))


def saved(folder: Path, x: np.ndarray, n_files: int) -> Path:
    """The rows in as many files, of unequal sizes."""
    ends = np.linspace(0.0, 1.0, n_files + 1)[1:-1] ** 1.3 * len(x)
    for i, part in enumerate(np.split(x, ends.astype(int))):
        np.save(folder / f"part-{i:02d}.npy", part)
    return folder


def fitted(source: Any, **settings: Any) -> DPMixture:
    return DPMixture(**{"family": FAMILY, "random_state": 0} | settings).fit(source)


@cache
def fit_in_memory() -> DPMixture:
    """Of `grid(2000)` by `vdp`."""
    return fitted(grid(2000), method="vdp")


@pytest.fixture(scope="module")
def few_on_disk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DPMixture]:
    """A folder of `few_clusters(300)` in three files, and the fit of it: both to be read only."""
    source = saved(tmp_path_factory.mktemp("few"), few_clusters(300), 3)
    return source, fitted(source)


@pytest.fixture(scope="module")
def of_columns(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DPMixture]:
    """A file of `few_clusters(300)` with columns a and b, and the fit of it: both to be read only."""
    x = few_clusters(300)
    source = tmp_path_factory.mktemp("columns") / "x.parquet"
    parquet.write_table(pa.table({"a": x[:, 0], "b": x[:, 1]}), source)
    return source, fitted(source)


@pytest.mark.parametrize("method", ["vdp", longer("fast-vdp")])
def test_bound_is_that_of_a_fit_in_memory(tmp_path: Path, method: str) -> None:
    """Both find the nine. They end within the tolerance of a fit, a hundred-thousandth nat a point, of one bound.

    So does `fast-vdp` below, where coarse cells are divided."""
    x = grid(2000)
    on_disk = fitted(saved(tmp_path, x, 3), method=method)
    in_memory = fit_in_memory()
    assert len(on_disk.weights_) == len(in_memory.weights_) == 9
    assert on_disk.elbo_ == pytest.approx(in_memory.elbo_, abs=1e-5 * len(x) if method == "vdp" else 5.0)
    assert on_disk.elbo_is_exact_
    assert on_disk.converged_
    np.testing.assert_allclose(on_disk.means_, in_memory.means_, atol=0.02)


def test_bound_is_that_of_the_responsibilities_of_its_components(tmp_path: Path) -> None:
    """Responsibilities by SciPy from the reported statistics, and the bound of these in closed form."""
    x = few_clusters(1000, seed=1)
    model = fitted(saved(tmp_path, x, 4))
    stats = model._fitted.fit.stats
    behind = np.append(np.cumsum(stats.mass[::-1])[::-1][1:], 0.0)
    total = digamma(2.0 + stats.mass + behind)
    stop, go = digamma(1.0 + stats.mass) - total, digamma(1.0 + behind) - total
    log_weight = stop + np.append(0.0, np.cumsum(go)[:-1])
    resp = softmax(FAMILY.expected_log_likelihood(FAMILY.posterior(stats), x) + log_weight, axis=1)
    assert model.elbo_ == pytest.approx(bound_of_responsibilities(FAMILY, x, resp, 1.0), abs=2e-5 * len(x))
    np.testing.assert_allclose(resp.sum(axis=0), stats.mass, atol=1.0)


def test_sums_over_blocks_are_those_of_one_block(tmp_path: Path) -> None:
    """And those of each leaf's points, taken one by one down the planes."""
    x = few_clusters(1500, seed=2)
    model = fitted(x)
    planes = planes_of(x, 100.0, np.random.default_rng(0))
    task = CellTask(model._fitted.placed, planes, origin_for(FAMILY, x))
    with InProcess().started() as pool:
        found = leaf_sums(Work(open_dataset(saved(tmp_path, x, 7)), pool, lambda stage, done: None), task)
    whole = leaf_sums_of_block(task, Rows(x))
    for part, other in zip(found, whole, strict=True):
        assert (part is None) == (other is None)
        if part is not None:
            np.testing.assert_allclose(part, other, rtol=1e-12, atol=1e-9)
    leaf = np.zeros(len(x), dtype=int)
    for i, point in enumerate(x):
        while planes.left[leaf[i]] >= 0:
            above = planes.axis[leaf[i]] @ point > planes.threshold[leaf[i]]
            leaf[i] = (planes.right if above else planes.left)[leaf[i]]
    for place, node in enumerate(planes.leaves):
        own = x[leaf == node] - planes.middle[node]
        assert found.mass[place] == len(own)
        np.testing.assert_allclose(found.first[place], own.sum(axis=0), atol=1e-9)
        np.testing.assert_allclose(found.second[place], own.T @ own, atol=1e-9)


def test_written_labels_are_those_of_predict_in_the_order_of_the_rows(tmp_path: Path) -> None:
    x = few_clusters(1000, seed=3)
    source = saved(tmp_path, x, 3)
    model = DPMixture(random_state=0).fit(source)
    assert not hasattr(model, "labels_")
    assert model.write_predictions(source, tmp_path / "out") == [f"part-{i:02d}.parquet" for i in range(3)]
    found = [parquet.read_table(tmp_path / "out" / f"part-{i:02d}.parquet") for i in range(3)]
    assert [len(part) for part in found] == [len(np.load(source / f"part-{i:02d}.npy")) for i in range(3)]
    labels, densities = (np.concatenate([part[name] for part in found]) for name in ("label", "log_density"))
    np.testing.assert_array_equal(labels, model.predict(x))
    assert np.abs(np.bincount(labels) - model.sizes_).max() <= 5  # near ties, predictions and responsibilities differ
    np.testing.assert_allclose(densities, model.score_samples(x), rtol=1e-12)
    assert labels.dtype == np.int64
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"part-{i:02d}.parquet" for i in range(3)]


def test_predictions_read_the_columns_of_the_fit_by_name(tmp_path: Path, of_columns: tuple[Path, DPMixture]) -> None:
    x = few_clusters(300)
    new = {"id": ["?"] * 300, "b": x[:, 1], "a": x[:, 0]}
    parquet.write_table(pa.table(new), tmp_path / "new.parquet")
    np.save(tmp_path / "plain.npy", x)
    for model in (of_columns[1], fitted(pd.DataFrame({"a": x[:, 0], "b": x[:, 1]}))):
        for source in ("new.parquet", "plain.npy"):
            (name,) = model.write_predictions(tmp_path / source, tmp_path / "out")
            densities = parquet.read_table(tmp_path / "out" / name)["log_density"]
            expected = model.score_samples(pd.DataFrame({"a": x[:, 0], "b": x[:, 1]}))
            np.testing.assert_allclose(densities, expected, rtol=1e-12)
    with pytest.raises(ShapeError, match="the columns b, a, the fit a, b"):
        model.write_predictions(open_dataset(tmp_path / "new.parquet", ["b", "a"]), tmp_path / "out")
    parquet.write_table(pa.table({"c": x[:, 0], "b": x[:, 1]}), tmp_path / "other.parquet")
    with pytest.raises(SettingError, match="no column 'a'"):
        model.write_predictions(tmp_path / "other.parquet", tmp_path / "out")


def test_names_of_columns_are_those_of_the_features(tmp_path: Path) -> None:
    """As of a data frame: families by column, and predictions of frames and files."""
    x = few_clusters(300, seed=3)
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1].round().clip(0)})
    frame.to_parquet(tmp_path / "x.parquet")
    model = DPMixture({"a": "gaussian", "b": "poisson"}, random_state=0).fit(tmp_path / "x.parquet")
    assert model.feature_names_in_.tolist() == ["a", "b"]
    model.write_predictions(tmp_path / "x.parquet", tmp_path / "out")
    np.testing.assert_array_equal(parquet.read_table(tmp_path / "out" / "x.parquet")["label"], model.predict(frame))
    np.save(tmp_path / "x.npy", x)
    model.set_params(family="gaussian").fit(tmp_path / "x.npy")
    assert not hasattr(model, "feature_names_in_")
    model.predict(x)


def test_rows_that_are_no_points_get_no_labels(tmp_path: Path, few_on_disk: tuple[Path, DPMixture]) -> None:
    model = few_on_disk[1]
    saved(tmp_path, few_clusters(300), 3)
    bad = np.load(tmp_path / "part-01.npy")
    bad[5, 1] = np.nan
    np.save(tmp_path / "part-01.npy", bad)
    with pytest.raises(NotFiniteError, match=r"part-01\.npy, row 5: it holds nan in column 1") as error:
        model.write_predictions(tmp_path, tmp_path / "out")
    assert error.value.row == 5
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["part-00.parquet"]


def test_labels_of_a_pyarrow_data_set_are_written_into_the_folder(
    tmp_path: Path, of_columns: tuple[Path, DPMixture]
) -> None:
    x = few_clusters(300)
    table = pa.table({"a": x[:, 0], "b": x[:, 1]})
    for name in ("in/k=1/x.parquet", "in/k=2/x.parquet"):
        (tmp_path / name).parent.mkdir(parents=True)
        parquet.write_table(table, tmp_path / name)
    before = (tmp_path / "in/k=1/x.parquet").read_bytes()
    model = of_columns[1]
    files = arrow.dataset(tmp_path / "in")
    assert model.write_predictions(files, tmp_path / "out") == ["k=1/x.parquet", "k=2/x.parquet"]
    in_memory = arrow.dataset([table, table])
    assert model.write_predictions(in_memory, tmp_path / "out") == ["rows-0.parquet", "rows-1.parquet"]
    assert (tmp_path / "in/k=1/x.parquet").read_bytes() == before
    labels = parquet.read_table(tmp_path / "out/k=2/x.parquet")["label"]
    assert parquet.read_table(tmp_path / "out/rows-1.parquet")["label"].equals(labels)


def test_predictions_never_replace_the_rows(tmp_path: Path, of_columns: tuple[Path, DPMixture]) -> None:
    x = few_clusters(300)
    folder = tmp_path / "rows"
    folder.mkdir()
    parquet.write_table(pa.table({"a": x[:, 0], "b": x[:, 1]}), folder / "x.parquet")
    before = (folder / "x.parquet").read_bytes()
    (tmp_path / "link").symlink_to(folder)
    model = of_columns[1]
    for out in (folder, tmp_path / "link", tmp_path / "rows" / ".." / "rows"):
        with pytest.raises(InputError, match=r"would replace the rows in \S*x\.parquet; choose another folder"):
            model.write_predictions(folder, out)
    assert (folder / "x.parquet").read_bytes() == before
    model.write_predictions(folder, folder / "labels")
    model.write_predictions(folder / "x.parquet", folder / "labels")  # its own labels are replaced


def test_every_worker_killed_once_and_the_bits_are_those_of_this_process(tmp_path: Path) -> None:
    source = saved(tmp_path, few_clusters(400, seed=4), 9)
    alone = DPMixture(random_state=0).fit(source)
    model = DPMixture(random_state=0, executor=KilledProcesses(2, after=14))
    killed = clone(model).fit(source)
    assert killed.elbo_history_.tolist() == alone.elbo_history_.tolist()
    for one, other in zip(killed._fitted.fit.stats, alone._fitted.fit.stats, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_family_whose_statistics_need_the_points(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = rng.poisson(np.array([[2.0, 30.0, 9.0], [40.0, 1.0, 9.0]])[rng.integers(2, size=1000)]).astype(float)
    family = GammaPoisson([1.0, 1.0, 1.0], 0.1)
    on_disk, in_memory = fitted(saved(tmp_path, x, 3), family=family), fitted(x, family=family)
    assert len(on_disk.weights_) == 2
    assert on_disk.elbo_ == pytest.approx(in_memory.elbo_, abs=1e-5 * len(x))


def test_coarse_cells_are_divided_where_that_raises_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a dozen leaves seven of the nine clusters are found; the others lie across cells that are then divided."""
    x = grid(4000, seed=6)
    source, settings = saved(tmp_path, x, 2), {"method": "fast-vdp", "leaf_points": 500.0, "point_rounds": 20}
    divided = fitted(source, **settings)
    monkeypatch.setattr("shoal.offline.fit._REFINED", 0)
    coarse = fitted(source, **settings)
    assert divided.elbo_ > coarse.elbo_ + 100.0
    assert len(divided.weights_) == 9 > len(coarse.weights_)
    assert divided.elbo_ == pytest.approx(fitted(x).elbo_, abs=1e-5 * len(x))


def test_a_bad_row_is_named_by_file_and_row(tmp_path: Path) -> None:
    x = grid(300)
    x[250, 1] = np.nan
    source = saved(tmp_path, x, 2)
    first = len(np.load(source / "part-00.npy"))
    with pytest.raises(NotFiniteError, match=rf"part-01.npy, row {250 - first}: it holds nan in column 1"):
        DPMixture().fit(source)
    with pytest.raises(OutsideDomainError, match=r"part-00.npy, row 0: it holds -?\d+\.\d+ in column 0"):
        DPMixture("poisson").fit(saved(tmp_path, grid(300), 2))


def test_a_bad_value_is_named_by_its_column(tmp_path: Path) -> None:
    table = {"idle": [0.0, 1.0, 2.0], "load": [5.0, 1.5, -2.0]}
    parquet.write_table(pa.table(table), tmp_path / "x.parquet")
    with pytest.raises(OutsideDomainError, match=r"x\.parquet, row 1: it holds 1\.5 in column 'load'; ") as error:
        DPMixture("poisson").fit(tmp_path)
    assert (error.value.row, error.value.column) == (1, 1)


def test_a_sample_is_of_the_drawn_rows_and_a_bad_row_is_counted_from_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of several chunks, of which one has no drawn row."""
    monkeypatch.setattr("shoal.offline.dataset._CHUNK_ELEMENTS", 2 * 16)
    x = np.arange(400.0).reshape(200, 2)
    source = saved(tmp_path, x, 5)
    drawn = np.sort(np.random.default_rng(8).choice(200, 12, replace=False, shuffle=False))
    with InProcess().started() as pool:
        work = Work(open_dataset(source), pool, lambda stage, done: None)
        found = sampled(work, "gaussian", 12, np.random.default_rng(8))
        np.testing.assert_array_equal(found, x[drawn])
        last = np.load(source / "part-04.npy")
        last[37, 0] = np.inf
        np.save(source / "part-04.npy", last)
        with pytest.raises(NotFiniteError, match=r"part-04.npy, row 37: it holds inf in column 0") as error:
            sampled(work, "gaussian", 12, np.random.default_rng(8))
    assert error.value.row == 37


def test_what_a_data_set_is_not_fitted_by_is_said(tmp_path: Path) -> None:
    source = saved(tmp_path, grid(50), 2)
    for settings, words in (
        ({"method": "gibbs"}, "'gibbs' needs all points in memory; .* vdp or fast-vdp"),
        ({"n_init": 2}, "n_init is 2"),
        ({"family": "student"}, "student"),
        ({"family": "gausian"}, "family is 'gausian'; .*'gaussian'"),
        ({"family": 3}, "family is 3"),
        ({"executor": "threads"}, "executor is 'threads'; choose 'in-process', 'processes' or 'ray'"),
        ({"n_jobs": 2}, "give executor='processes'"),
        ({"executor": "processes", "n_jobs": 0}, "number of workers is 0"),
    ):
        with pytest.raises(SettingError, match=words):
            DPMixture(**settings).fit(source)
    with pytest.raises(SettingError, match="write_predictions"):
        DPMixture().fit_predict(source)
    model = DPMixture().fit(source)
    np.save(tmp_path / "wide.npy", np.zeros((4, 3)))
    with pytest.raises(ShapeError, match="3 features, the fit 2"):
        model.write_predictions(tmp_path / "wide.npy", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_where_rows_are_needed_is_refused_with_what_reads_it(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", grid(50))
    model = DPMixture().fit(tmp_path / "x.npy")
    for read in (StreamingDPMixture().fit, model.predict, model.score):
        for source in (tmp_path / "x.npy", str(tmp_path), arrow.dataset(pa.table({"a": [1.0], "b": [2.0]}))):
            with pytest.raises(InputError, match=r"read by DPMixture\.fit and DPMixture\.write_predictions only"):
                read(source)
