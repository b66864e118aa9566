"""Compile every kernel into SHOAL_KERNEL_CACHE by using it; part of the image's build.

The kernels are those that a process of the image would otherwise compile: the one pass of every family, refinements,
predictions, and the batch methods of `shoal fit`. A method that needs another family is skipped with a message.
"""

import sys

import numpy as np

from shoal import DPMixture, ShoalError, StreamingDPMixture
from shoal.estimators.batch_engines import ENGINES
from shoal.families import DEFAULT_FAMILY, FAMILIES
from shoal.points.domains import COUNTS
from shoal.sequential import warm_kernels


def main() -> None:
    """Use each kernel once on small data. Refinements have different kernels for few features and for many."""
    rng = np.random.default_rng(0)
    heaps = {d: rng.normal(size=(1_500, d)) + 8.0 * rng.integers(3, size=(1_500, 1)) for d in (3, 6, 40)}
    counts = rng.poisson(np.where(rng.integers(2, size=(1_500, 1)) > 0, [4.0, 0.2, 0.2], [0.2, 0.2, 4.0]))
    warm_kernels()
    located = [(name, heaps[d]) for name, kind in FAMILIES.items() if kind.domain.located for d in (3, 6)]
    counted = next(name for name, kind in FAMILIES.items() if kind.domain is COUNTS)  # refinements of counts are alike
    for family, points in (*located, (DEFAULT_FAMILY, heaps[40]), (counted, counts)):
        model = StreamingDPMixture(family=family).partial_fit(points)
        model.refine()
        model.predict(points[:10])
    for method in ENGINES:
        try:
            DPMixture(method=method).fit(heaps[6][:100])
        except ShoalError as error:
            print(f"{method}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
