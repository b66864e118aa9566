"""Limits of the rounds of a two-way split, which the compiled rounds and those in NumPy share.

They stand alone because a kernel is compiled again when a type or a constant of a file that it imports changes.
"""

from typing import NamedTuple


class SplitLimits(NamedTuple):
    """When the rounds of a two-way split end."""

    rounds: int = 30
    tolerance: float = 1e-4
    """Nats a point of a round below which it is the last."""
    late_rounds: float = 20.0
    """From the third rise on, a division ends when so many more rounds like the last would gain too little."""
    early_rounds: float = 100.0
    """The same before. Rounds that begin at a plane of symmetry pass a saddle: they gain well, then little, then more
    and more. With twenty, one in forty pairs of Gaussians about one point was lost."""
    far: float = 150.0
    """Nats by which an early round must fall short to end the division. A division of a few dozen rows may hardly gain
    for a round or two, and gain after all, as rows change sides one by one."""
    least_gain: float = 0.0
    """Nats that a division must gain beyond the correction; negative: it may lose so many."""
    least_share: float = 1e-6
    """Share of the component below which a child has died."""


LIMITS = SplitLimits()
