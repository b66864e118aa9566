"""`shoal fit --method`: every batch method on a small file, what is printed of its bound, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from shoal import DPMixture
from shoal.estimators.batch_engines import ENGINES
from shoal_service.cli.exits import ExitCode
from shoal_service.cli.fit_batch import BOUND_OF
from shoal_service.cli.model_options import ONE_PASS, Method

Shoal = Callable[..., Result]
OF = {"dirichlet-process": "Dirichlet process", "truncated-sticks": "truncated", "symmetric-dirichlet": "symmetric"}
Z = np.repeat([0, 1, 2], [30, 20, 10])
X = np.array([[0, 0], [20, 0], [0, 20]])[Z] + np.random.default_rng(0).normal(size=(60, 2))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.npy"
    np.save(path, X)
    return path


def test_methods_are_those_of_the_library() -> None:
    """Written down twice, so that `--help` need not load the library."""
    assert set(ENGINES) == set(BOUND_OF) == set(Method) - set(ONE_PASS)


@pytest.mark.parametrize("method", ENGINES)
@pytest.mark.short_form("vdp", "gibbs", "search", "*tsb", "*fsd")
def test_every_method_prints_what_the_library_finds(shoal: Shoal, file: Path, tmp_path: Path, method: str) -> None:
    said = shoal("fit", file, "--method", method, "--json", "--out", tmp_path / "labels.npy")
    assert said.exit_code == 0, said.stderr
    assert said.stderr.startswith("60 labels written to ")
    model = DPMixture(method=method, random_state=0).fit(X)
    labels = np.load(tmp_path / "labels.npy")
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(labels, model.labels_)
    found = json.loads(said.stdout)
    assert (found["points"], found["method"], found["rounds"]) == (60, method, model.n_iter_)
    exact = method not in ("ctsb", "o-ctsb", "cfsd")
    assert found["bound"] == {"nats": model.elbo_, "exact": exact, "evidence_of": BOUND_OF[method]}
    assert [c["id"] for c in found["components"]] == np.unique(labels).tolist()
    assert found["unused_components"] == len(model.weights_) - len(found["components"])
    assert sum(c["mass"] for c in found["components"]) == pytest.approx(60, abs=1.0)
    assert [c["mean"] for c in found["components"][:3]] == model.means_[:3].tolist()


@pytest.mark.parametrize("method", ["vdp", "ctsb", "fsd", "gibbs"])
def test_bound_is_named_beside_plain_lines(shoal: Shoal, file: Path, method: str) -> None:
    said = shoal("fit", file, "--method", method, "--family", "diagonal")
    assert said.exit_code == 0, said.stderr
    header, *lines = [line.split("\t") for line in said.stdout.splitlines()]
    assert header == ["id", "weight", "mass", "mean"]
    assert [line[0] for line in lines] == [str(k) for k in range(len(lines))]
    (remark,) = said.stderr.splitlines()
    assert OF[BOUND_OF[method]] in remark
    assert f" nats, {'approximate' if method == 'ctsb' else 'exact'}" in remark
    bound = DPMixture("diagonal", method, random_state=0).fit(X).elbo_
    assert f": {bound:,.2f} nats" in remark


def test_table_in_a_terminal_has_the_bound_below(shoal: Shoal, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("shoal_service.cli.fit_batch.for_people", lambda: True)
    said = shoal("fit", file, "--method", "fast-vdp")
    assert said.exit_code == 0, said.stderr
    assert "3 components of 60 points, by fast-vdp" in said.stdout
    assert "bound on the log evidence of the Dirichlet process: -" in said.stdout
    assert "nats, exact" in said.stdout
    assert "converged" in said.stdout
    assert said.stderr == ""


def test_settings_reach_the_engine(shoal: Shoal, file: Path) -> None:
    more = ["--truncation", 4, "--concentration", 2.5, "--random-state", 7, "--family", "diagonal"]
    found = json.loads(shoal("fit", file, "--method", "tsb", *more, "--json").stdout)
    model = DPMixture("diagonal", "tsb", 2.5, truncation=4, random_state=7).fit(X)
    assert found["bound"]["nats"] == model.elbo_
    assert len(found["components"]) + found["unused_components"] == 4


def test_starts_and_expectations_reach_the_engine(shoal: Shoal, file: Path) -> None:
    more = ["--truncation", 3, "--n-init", 3, "--expectations", "exact"]
    found = json.loads(shoal("fit", file, "--method", "ctsb", *more, "--json").stdout)
    model = DPMixture(method="ctsb", truncation=3, n_init=3, expectations="exact", random_state=0).fit(X)
    assert found["bound"]["nats"] == model.elbo_
    assert found["bound"]["exact"]


def test_stdin_is_read_whole_and_labelled(shoal: Shoal, tmp_path: Path) -> None:
    """One pass needs a second for labels, and stdin has one; a batch fit has its labels already."""
    text = "".join(f"{a},{b}\n" for a, b in X).encode()
    said = shoal("fit", "-", "--method", "vdp", "--out", tmp_path / "labels.npy", stdin=text)
    assert said.exit_code == 0, said.stderr
    assert len(set(zip(np.load(tmp_path / "labels.npy").tolist(), Z.tolist(), strict=True))) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vdp", "--save", "{tmp}/state.shoal"], "--save writes the state of a stream"),
        (["gibbs", "--half-life", "100"], "--half-life is for one-pass"),
        (["vdp", "--truncation", "5"], "truncation is set, but method 'vdp' does not read it"),
        (["tsb", "--truncation", "0"], "truncation is 0"),
        (["tsb", "--n-init", "0"], "n_init is 0"),
        (["gibbs", "--n-init", "2"], "n_init is 2"),
        (["tsb", "--expectations", "exact"], "expectations is set, but method 'tsb' does not read it"),
        (["sva", "--n-init", "2"], "--n-init is for batch methods"),
        (["tsb", "--concentration", "-1"], "concentration is -1"),
        (["nonsense"], "nonsense"),
    ],
)
def test_what_a_batch_method_does_not_take_is_refused(
    shoal: Shoal, tmp_path: Path, file: Path, arguments: list[str], words: str
) -> None:
    """Before the file is read: it is not even there in half of the cases."""
    for points in (file, tmp_path / "missing.npy"):
        said = shoal("fit", points, "--method", *[a.replace("{tmp}", str(tmp_path)) for a in arguments])
        assert said.exit_code == ExitCode.USAGE, said.output
        assert words in said.stderr
        assert said.stdout == ""
    assert not (tmp_path / "state.shoal").exists()


def test_points_that_cannot_be_used_are_exit_2(shoal: Shoal, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    np.save(tmp_path / "nan.npy", np.array([[1.0, 2.0], [np.nan, 1.0]]))
    for name, words in (("empty.csv", "no points"), ("nan.npy", "row 1 ")):
        said = shoal("fit", tmp_path / name, "--method", "vdp")
        assert (said.exit_code, said.stdout) == (ExitCode.USAGE, "")
        assert words in said.stderr
