"""Copies of rows in a window, such as those of a file that was sent twice.

A mixture takes every copy for an observation of its own. So with r copies of each row the evidence for splits that fit
chance grows r times. (8,000 rows of cytometry were 20 components, and 98 when sent three times.) A refinement therefore
judges components by each row once: its bound gives every row of the window the weight 1 / r. Masses still count all.

Values of few digits, and events that recur, repeat too, and then each repetition is evidence. They differ in how often:
some rows come once, others many times. Rows that were sent again have all come about equally often. A few different
rows may do so by themselves, as the states of a machine that runs in a cycle. These are no copies.
"""

import numpy as np

from shoal.points.arrays import Array

EQUALLY_OFTEN = 0.9
"""Share of the different rows that come r or r + 1 times, from which on they are copies. Of rows that repeat by chance,
a Poisson number of times each, it is at most 0.82 where half or more repeat."""


FEWEST_DIFFERENT = 32
"""Fewer different rows are no copies, however often each occurs."""


def typical_copies(rows: Array) -> int:
    """The median (>= 1) of how often each different one of the rows (N, D), N >= 1, occurs; 1 if they are not copies.

    Rows are equal if their bytes are. Single rows that occur far more often, such as those of a sensor that stands
    still, do not matter.
    """
    # A median of 2 or more needs 1.5 rows or more for each different one, which mostly one column excludes.
    if len(np.unique(rows[:, 0])) > len(rows) / 1.5:
        return 1
    # By hashes, as sorting the rows would copy them. Hashes differ between processes; which are equal does not.
    hashes = np.fromiter((hash(row.tobytes()) for row in rows), np.int64, len(rows))
    counts = np.sort(np.unique(hashes, return_counts=True)[1])
    if len(counts) < FEWEST_DIFFERENT:
        return 1
    typical = int(counts[(len(counts) - 1) // 2])
    together = max(np.count_nonzero((counts == first) | (counts == first + 1)) for first in (typical - 1, typical))
    return typical if together >= EQUALLY_OFTEN * len(counts) else 1
