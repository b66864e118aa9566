"""The handwritten digits of scikit-learn as a stream: 1,797 images, 12 principal components, a fixed random order.

python docs/examples/digits.py digits.npy digits-labels.npy
"""

import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

if __name__ == "__main__":
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    points = PCA(12, svd_solver="full").fit_transform(images)[order]
    np.save(sys.argv[1], points)
    np.save(sys.argv[2], digits[order])
    print(f"{points.shape[0]} points of {points.shape[1]} features in {sys.argv[1]}")
