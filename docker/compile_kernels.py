"""Compile every kernel into SHOAL_KERNEL_CACHE by using it; part of the image's build.

The kernels are those that a process of the image would otherwise compile: the one pass of every family, refinements,
predictions, and the batch methods of `shoal fit`. A method that needs another family is skipped with a message.
"""

import sys

import numpy as np

from shoal import DPMixture, ShoalError, StreamingDPMixture
from shoal.estimators.batch_engines import ENGINES
from shoal.sequential import warm_kernels


def main() -> None:
    """Use each kernel once on small data. Refinements have different kernels for few features and for many."""
    rng = np.random.default_rng(0)
    few = rng.normal(size=(1_500, 3)) + 8.0 * rng.integers(3, size=(1_500, 1))
    heaps = rng.normal(size=(1_500, 6)) + 8.0 * rng.integers(3, size=(1_500, 1))
    wide = rng.normal(size=(1_500, 40)) + 8.0 * rng.integers(3, size=(1_500, 1))
    counts = rng.poisson(np.where(rng.integers(2, size=(1_500, 1)) > 0, [4.0, 0.2, 0.2], [0.2, 0.2, 4.0]))
    warm_kernels()
    gaussian = [(family, points) for family in ("known_covariance", "diagonal", "gaussian") for points in (few, heaps)]
    for family, points in (*gaussian, ("gaussian", wide), ("multinomial", counts)):
        model = StreamingDPMixture(family=family).partial_fit(points)
        model.refine()
        model.predict(points[:10])
    for method in ENGINES:
        try:
            DPMixture(method=method).fit(heaps[:100])
        except ShoalError as error:
            print(f"{method}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
