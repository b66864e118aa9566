"""Points that live and refined components share: what counts as none, and who succeeds a component without any."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.testing import assert_allclose
from scipy.sparse import csr_matrix

from shoal.families import NormalInverseGamma
from shoal.refinement.job import _shared


def test_less_than_a_millionth_of_a_point_is_none_and_a_component_without_any_has_one_successor() -> None:
    """Two refined components, at 0 and 9. Of the live ones at 0, 9 and 8.9, the third has a trace of both."""
    family = NormalInverseGamma.weak(1)
    x = np.array([[0.0], [9.0], [8.9]])

    def of(resp: Any) -> Any:
        return family.suffstats(x, np.asarray(resp))

    live = of([[40.0, 0.0, 0.0], [0.0, 40.0, 0.0], [0.0, 0.0, 40.0]])
    resp = csr_matrix([[1.0, 9e-7], [2e-6, 1.0], [4e-7, 0.0]])
    live_resp = csr_matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    problem: Any = SimpleNamespace(
        family=family, live=live, past=SimpleNamespace(stats=of(np.zeros((3, 3)))), weights=np.array([1.0, 0.5, 1.0])
    )
    solution: Any = SimpleNamespace(
        family=family,
        stats=of([[40.0, 0.0], [0.0, 40.0], [0.0, 0.0]]),
        past_row=np.array([0, 1, 0]),
        live_resp=live_resp,
        resp=resp,
    )
    shared = _shared(problem, solution)
    assert_allclose(shared.toarray(), [[1.0, 0.0], [1e-6, 0.5], [0.0, 1e-6]], rtol=1e-12)
    assert shared.nnz == 4
