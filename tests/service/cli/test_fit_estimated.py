"""`shoal fit --family` with proportions and unit vectors, and a family that batch methods refuse before reading."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from harness.gradient_proportions import GradientProportions
from shoal.families import FAMILIES

Shoal = Callable[..., Result]


@pytest.mark.parametrize("family", ["dirichlet", "von_mises_fisher"])
def test_one_pass_takes_them(shoal: Shoal, tmp_path: Path, family: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_gamma(50.0 * np.array([[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]])[np.arange(120) % 2])
    x /= x.sum(axis=1, keepdims=True) if family == "dirichlet" else np.linalg.norm(x, axis=1, keepdims=True)
    np.save(tmp_path / "x.npy", x)
    said = shoal("fit", tmp_path / "x.npy", "--family", family, "--json", "--out", tmp_path / "labels.npy")
    assert said.exit_code == 0, said.stderr
    assert len(json.loads(said.stdout)["components"]) >= 2
    labels = np.load(tmp_path / "labels.npy")
    assert labels[0] != labels[1]
    assert (labels[::2] == labels[0]).mean() > 0.95


def test_batch_methods_refuse_a_family_learnt_by_gradients(
    shoal: Shoal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAMILIES, GradientProportions.name, GradientProportions)
    refused = shoal("fit", tmp_path / "absent.npy", "--family", GradientProportions.name, "--method", "vdp")
    assert refused.exit_code != 0
    assert "conjugate" in refused.stderr
    assert "StreamingDPMixture" in refused.stderr


def test_every_family_is_listed(shoal: Shoal) -> None:
    said = shoal("fit", "--list-families")
    assert said.exit_code == 0
    assert [line.split("\t")[0] for line in said.stdout.splitlines()] == list(FAMILIES)
