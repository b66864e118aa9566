"""A family of your own, learned in one pass: waiting times with a gamma distribution of known shape and unknown rate.

    python docs/examples/own_family.py

A family is one class derived from `EstimatedFamily`. It defines the log prior, the log likelihood, their gradients, a
start value, and draws from the prior. The draws give the integral of a new component. The unconstrained parameter
here is u = log rate, one number for each feature. The prior is normal, as a density in u.
"""

from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from shoal import StreamingDPMixture
from shoal.families import EstimatedFamily, register
from shoal.points.domains import Domain

TIMES = Domain("waiting times", "numbers above 0", lambda values: values > 0.0)


@register
class WaitingTimes(EstimatedFamily):
    """x_d ~ Gamma(shape, rate exp(u_d)), u_d ~ Normal(mean_d, deviation^2)."""

    FIELDS: ClassVar[dict[str, str]] = {"mean": "mean", "deviation": "deviation", "shape": "shape"}
    name: ClassVar[str] = "waiting_times"
    domain: ClassVar[Domain] = TIMES

    def __init__(self, mean, deviation, shape):
        self._freeze(mean=np.array(mean, dtype=float), deviation=float(deviation), shape=float(shape))

    @classmethod
    def weak(cls, n_features):
        return cls(np.zeros(n_features), 3.0, 10.0)

    @property
    def n_features(self):
        return self.mean.size

    @property
    def n_parameters(self):
        return self.mean.size

    def log_prior(self, u):
        z = (u - self.mean) / self.deviation
        return (-0.5 * z**2 - np.log(self.deviation * np.sqrt(2.0 * np.pi))).sum(axis=1)

    def log_prior_gradient(self, u):
        return (self.mean - u) / self.deviation**2

    def log_likelihood(self, u, x):
        own = ((self.shape - 1.0) * np.log(x) - gammaln(self.shape)).sum(axis=1)
        return own[:, None] + self.shape * u.sum(axis=1) - x @ np.exp(u).T

    def log_likelihood_gradient(self, u, point):
        return self.shape - np.exp(u) * point

    def direction(self, u, gradient):
        return gradient / self.shape  # divided by the Fisher information of u, so that the first steps do not overshoot

    def start(self, point):
        return np.log(self.shape / point)

    def draw_prior(self, n, rng):
        return self.mean + self.deviation * rng.standard_normal((n, self.mean.size))

    def means(self, u):
        return self.shape * np.exp(-u)


def main():
    rng = np.random.default_rng(0)
    truth = np.array([[1.0, 1.0], [1.0, 8.0], [20.0, 3.0]])  # mean waiting times in two queues, for three kinds of hour
    x = rng.gamma(10.0, truth[rng.integers(3, size=3_000)] / 10.0)
    model = StreamingDPMixture("waiting_times", prior=WaitingTimes([0.0, 0.0], 3.0, 10.0)).fit(x)
    print("hours  mean waiting times")
    for k in np.argsort(-model.masses_)[:3]:
        print(f"{model.masses_[k]:5.0f}  {model.means_[k].round(2)}")


if __name__ == "__main__":
    main()
