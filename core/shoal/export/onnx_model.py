"""ONNX model of a mixture: predictions and densities in float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import shoal
from shoal.errors import SettingError
from shoal.export.contents import Contents, contents_of
from shoal.families.portable import Portable
from shoal.points.arrays import Array

OPSET = 18
"""Version of the ONNX operators, which runtimes since 2023 know."""
IR_VERSION = 9
_SHIFT = 8
"""log G(z) = log G(z + shift) - log of z (z + 1) ... (z + shift - 1), so that the series is accurate to 1e-14."""
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
"""Coefficients of z^-1, z^-3, ... in Stirling's series."""


def to_onnx(model: Any) -> Any:
    """The mixture of a fitted estimator as an `onnx.ModelProto`.

    Input `x` (N, D) float64. Outputs `component` (N,) int64, the id of the best component; `log_density` (N,) in nats;
    `novelty` (N,); `responsibilities` (N, K) of the components in the order of the metadata `component_ids`.

    Raises SettingError and NoPointsError as `contents_of`, SettingError without the package onnx.
    """
    contents = contents_of(model)
    try:
        import onnx
    except ImportError:
        raise SettingError("an export as ONNX needs the package onnx; run pip install 'shoal[onnx]'") from None
    graph = Graph(onnx)
    outputs = _write_mixture(graph, contents)
    made = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "shoal_mixture",
            [graph.described("x", [None, len(contents.location)], np.float64)],
            [graph.described(name, shape, kind) for name, shape, kind in outputs],
            graph.constants,
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="shoal",
        producer_version=shoal.__version__,
    )
    about = {"family": contents.family, "component_ids": " ".join(map(str, contents.ids.tolist()))}
    if contents.feature_names is not None:
        about["feature_names"] = "\n".join(contents.feature_names)
    onnx.helper.set_model_props(made, about)
    onnx.checker.check_model(made, full_check=True)
    return made


class Graph:
    """Nodes and constants of a graph under construction. Values are named by the nodes that give them."""

    def __init__(self, onnx: Any) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._onnx = onnx

    def constant(self, values: Any) -> str:
        """Name of an array of the graph: float64, or int64 for whole numbers."""
        array = np.asarray(values)
        name = f"constant_{len(self.constants)}"
        kept = np.ascontiguousarray(array, dtype=np.int64 if array.dtype.kind in "iu" else np.float64)
        self.constants.append(self._onnx.numpy_helper.from_array(kept.reshape(array.shape), name))
        return name

    def apply(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Name of the result of an operator."""
        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def sum(self, value: str, axis: int) -> str:
        """Sum over an axis, which goes."""
        return self.apply("ReduceSum", value, self.constant([axis]), keepdims=0)

    def described(self, name: str, shape: list[int | None], kind: type) -> Any:
        """Description of an input or output; None stands for any length."""
        element = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        return self._onnx.helper.make_tensor_value_info(name, element, shape)


def _write_mixture(graph: Graph, contents: Contents) -> list[tuple[str, list[int | None], type]]:
    """Write the graph of the mixture. Returns name, shape and type of its outputs."""
    k = len(contents.ids)
    z = graph.apply("Div", graph.apply("Sub", "x", graph.constant(contents.location)), graph.constant(contents.scale))
    scores = _DISTRIBUTIONS[contents.predictive.distribution](graph, z, contents.predictive)
    with np.errstate(divide="ignore"):  # a component whose mass has underflowed has weight 0
        offset = np.log(contents.weights) - np.log(contents.scale).sum()
    joint = graph.apply("Add", scores, graph.constant(offset))
    top = graph.apply("ReduceMax", joint, graph.constant([1]), keepdims=1)
    parts = graph.apply("Exp", graph.apply("Sub", joint, top))
    total = graph.apply("ReduceSum", parts, graph.constant([1]), keepdims=1)
    log_density = graph.apply("Add", top, graph.apply("Log", total))
    graph.apply("Squeeze", log_density, graph.constant([1]), output="log_density")
    shares = graph.apply("Div", parts, total)
    first, end, last, axis = (graph.constant([value]) for value in (0, k, k + 1, 1))
    graph.apply("Slice", shares, first, end, axis, output="responsibilities")
    graph.apply("Squeeze", graph.apply("Slice", shares, end, last, axis), graph.constant([1]), output="novelty")
    best = graph.apply("ArgMax", graph.apply("Slice", joint, first, end, axis), axis=1, keepdims=0)
    graph.apply("Gather", graph.constant(contents.ids), best, output="component")
    return [
        ("component", [None], np.int64),
        ("log_density", [None], np.float64),
        ("novelty", [None], np.float64),
        ("responsibilities", [None, k], np.float64),
    ]


def _whitened_distance(graph: Graph, z: str, arrays: dict[str, Array]) -> str:
    """|whitening (z - mean)|^2 (N, K)."""
    k, d = arrays["mean"].shape
    shift = np.einsum("kij,kj->ki", arrays["whitening"], arrays["mean"])
    flat = graph.apply("MatMul", z, graph.constant(arrays["whitening"].reshape(k * d, d).T))
    rows = graph.apply("Reshape", flat, graph.constant([-1, k, d]))
    centred = graph.apply("Sub", rows, graph.constant(shift))
    return graph.sum(graph.apply("Mul", centred, centred), 2)


def _log1p(graph: Graph, value: str) -> str:
    return graph.apply("Log", graph.apply("Add", value, graph.constant(1.0)))


def _minus(graph: Graph, constant: Array, value: str) -> str:
    return graph.apply("Sub", graph.constant(constant), value)


def _multivariate_t(graph: Graph, z: str, found: Portable) -> str:
    logs = _log1p(graph, _whitened_distance(graph, z, found.arrays))
    scaled = graph.apply("Mul", logs, graph.constant(found.arrays["power"]))
    return _minus(graph, found.arrays["log_constant"], scaled)


def _multivariate_normal(graph: Graph, z: str, found: Portable) -> str:
    half = graph.apply("Mul", _whitened_distance(graph, z, found.arrays), graph.constant(0.5))
    return _minus(graph, found.arrays["log_constant"], half)


def _independent_t(graph: Graph, z: str, found: Portable) -> str:
    arrays = found.arrays
    rows = graph.apply("Unsqueeze", z, graph.constant([1]))
    away = graph.apply("Sub", rows, graph.constant(arrays["mean"]))
    scaled = graph.apply("Mul", away, graph.constant(arrays["inverse_width"]))
    logs = graph.sum(_log1p(graph, graph.apply("Mul", scaled, scaled)), 2)
    return _minus(graph, arrays["log_constant"], graph.apply("Mul", logs, graph.constant(arrays["power"])))


def _bernoulli(graph: Graph, z: str, found: Portable) -> str:
    odds = graph.apply("MatMul", z, graph.constant(found.arrays["log_odds"].T))
    return graph.apply("Add", odds, graph.constant(found.arrays["log_zeros"]))


def _negative_binomial(graph: Graph, z: str, found: Portable) -> str:
    arrays = found.arrays
    rises = graph.sum(_log_rise(graph, arrays["shape"], z), 2)
    rates = graph.apply("MatMul", z, graph.constant(arrays["log_rate"].T))
    return graph.apply("Add", graph.apply("Sub", rises, rates), graph.constant(arrays["log_zeros"]))


def _beta_negative_binomial(graph: Graph, z: str, found: Portable) -> str:
    arrays = found.arrays
    up = graph.apply("Add", _log_rise(graph, arrays["b"], z), _log_rise(graph, arrays["dispersion"], z))
    terms = graph.apply("Sub", up, _log_rise(graph, arrays["sum"], z))
    return graph.apply("Add", graph.sum(terms, 2), graph.constant(arrays["log_zeros"]))


def _dirichlet_multinomial(graph: Graph, z: str, found: Portable) -> str:
    terms = graph.sum(_log_rise(graph, found.arrays["pseudo_counts"], z), 2)
    length = graph.apply("ReduceSum", z, graph.constant([1]), keepdims=1)
    whole = _log_rise(graph, found.arrays["strength"][:, None], length)
    return graph.apply("Sub", terms, graph.sum(whole, 2))


def _log_rise(graph: Graph, a: Array, n: str) -> str:
    """log[G(a + n) / (G(a) n!)] (N, K, D) of a (K, D) > 0 and n (N, D).

    log G has no digits left where its arguments are large, so the series of Stirling are subtracted term by term. With
    b = a + `_SHIFT`, log[G(b + n) / G(b)] is n log b + (b + n - 1/2) log(1 + n / b) - n + a difference of two tails.
    """
    rows = graph.apply("Unsqueeze", n, graph.constant([1]))
    far = graph.constant(a + _SHIFT)
    far_above = graph.apply("Add", rows, far)
    by_ratio = _log1p_of_small(graph, graph.apply("Div", rows, far))
    by_ratio = graph.apply("Mul", graph.apply("Sub", far_above, graph.constant(0.5)), by_ratio)
    by_base = graph.apply("Mul", rows, graph.constant(np.log(a + _SHIFT) - 1.0))
    tails = graph.apply("Sub", _stirling_tail(graph, far_above), _stirling_tail(graph, far))
    rise = graph.apply("Add", graph.apply("Add", by_base, by_ratio), tails)
    ratios = [graph.apply("Div", rows, graph.constant(a + step)) for step in range(_SHIFT)]
    product = graph.apply("Add", ratios[0], graph.constant(1.0))
    for ratio in ratios[1:]:
        product = graph.apply("Mul", product, graph.apply("Add", ratio, graph.constant(1.0)))
    rise = graph.apply("Sub", rise, graph.apply("Log", product))
    factorial = _log_gamma(graph, graph.apply("Add", rows, graph.constant(1.0)))
    return graph.apply("Sub", rise, factorial)


def _log1p_of_small(graph: Graph, value: str) -> str:
    """log(1 + value) (...) to all digits: the rounding of 1 + value cancels in log(w) / (w - 1), w = 1 + value."""
    one = graph.constant(1.0)
    whole = graph.apply("Add", value, one)
    rest = graph.apply("Sub", whole, one)
    none = graph.apply("Equal", rest, graph.constant(0.0))
    quotient = graph.apply("Div", graph.apply("Log", whole), graph.apply("Where", none, one, rest))
    return graph.apply("Where", none, value, graph.apply("Mul", value, quotient))


def _log_gamma(graph: Graph, z: str) -> str:
    """log G(z), z > 0, by Stirling's series (DLMF 5.11.1) at z + `_SHIFT`: ONNX has no such operator."""
    product = z
    for step in range(1, _SHIFT):
        product = graph.apply("Mul", product, graph.apply("Add", z, graph.constant(float(step))))
    far = graph.apply("Add", z, graph.constant(float(_SHIFT)))
    power = graph.apply("Mul", graph.apply("Sub", far, graph.constant(0.5)), graph.apply("Log", far))
    main = graph.apply("Add", graph.apply("Sub", power, far), graph.constant(0.5 * math.log(2.0 * math.pi)))
    whole = graph.apply("Add", main, _stirling_tail(graph, far))
    return graph.apply("Sub", whole, graph.apply("Log", product))


def _stirling_tail(graph: Graph, z: str) -> str:
    """The terms of Stirling's series in powers of 1 / z."""
    inverse = graph.apply("Reciprocal", z)
    square = graph.apply("Mul", inverse, inverse)
    series = graph.constant(_STIRLING[-1])
    for coefficient in reversed(_STIRLING[:-1]):
        series = graph.apply("Add", graph.apply("Mul", series, square), graph.constant(coefficient))
    return graph.apply("Mul", series, inverse)


_DISTRIBUTIONS: dict[str, Callable[[Graph, str, Portable], str]] = {
    "multivariate_t": _multivariate_t,
    "multivariate_normal": _multivariate_normal,
    "independent_t": _independent_t,
    "independent_bernoulli": _bernoulli,
    "independent_negative_binomial": _negative_binomial,
    "independent_beta_negative_binomial": _beta_negative_binomial,
    "dirichlet_multinomial": _dirichlet_multinomial,
}
