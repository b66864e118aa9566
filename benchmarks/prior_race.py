"""Loss and gain of the rounds in the search for an automatic prior, on the first thousand rows of streams.

    SHOAL_DATA=DIR python benchmarks/prior_race.py [--draws 4] [--out FILE.csv]

The reference is a longer search. It has no first heat, and keeps a third of the priors at half of the rows instead of a
fifth. `nats_a_point` is the prequential log density of the scored rows under the chosen prior, minus that under the
choice of the longer search. CPU milliseconds are medians over the draws, in turn.
"""

import argparse
import csv
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from workloads import WORKLOADS

from shoal.mixture import StreamSettings
from shoal.sequential.prior import race as trials
from shoal.sequential.prior.choose import AutoPrior, choose_prior
from shoal.sequential.prior.jitter import jittered

ROWS = 1_000
FAMILIES = ("gaussian", "diagonal", "known_covariance")
DRAWN = ("grid-2d", "ten-16d", "ten-64d", "zipf-128d", "drift-2d", "drift-16d")
REAL = {
    "flow cytometry": ("flow_facscalibur.npz", "X"),
    "electricity": ("elec2_stream.npz", "X"),
    "outdoor": ("outdoor_stream.npz", "X"),
    "log lines": ("loghub_embed.npz", "X"),
    "mnist": ("mnist_pca50.npz", "X_train"),
}


def older(n_rows: int, n_priors: int) -> list[tuple[int, int]]:
    """Use the rounds of the longer search."""
    return [(n_rows // 2, -(-n_priors // 3))]


def streams() -> list[str]:
    return [*DRAWN, *(REAL if "SHOAL_DATA" in os.environ else ())]


def rows_of(name: str, rng: np.random.Generator) -> np.ndarray:
    if name in WORKLOADS:
        return WORKLOADS[name](ROWS, rng).x
    file, key = REAL[name]
    x = np.load(Path(os.environ["SHOAL_DATA"]) / file)[key]
    return x[rng.permutation(len(x))[:ROWS]].astype(float)


def score(settings: StreamSettings, rows: np.ndarray, chosen: AutoPrior) -> float:
    """Return the nats per point, in the units of the rows."""
    z = (np.asarray(jittered(rows, chosen.jitter, 0)) - chosen.location) / chosen.scale
    whole = trials.Trials(settings, chosen.prior, z).run(chosen.prior, len(z)).score
    return whole / trials.n_scored(len(z)) - float(np.log(chosen.scale).sum())


def compared(name: str, family: str, draws: int) -> dict[str, object]:
    times: dict[str, list[float]] = {"older": [], "race": []}
    differences = []
    for seed in range(draws + 1):  # the first is not timed
        rows = rows_of(name, np.random.default_rng(seed))
        settings, scores = StreamSettings(n_features=rows.shape[1], family=family), {}
        for kind, rounds in (("older", older), ("race", NOW)):
            trials.rounds = rounds
            began = time.process_time()
            chosen = choose_prior(rows, settings)
            times[kind].append(1e3 * (time.process_time() - began))
            scores[kind] = score(settings, rows, chosen)
        differences.append(round(scores["race"] - scores["older"], 4))
    milliseconds = {f"{kind}_ms": round(statistics.median(values[1:]), 1) for kind, values in times.items()}
    return {"stream": name, "family": family} | milliseconds | {"nats_a_point": " ".join(map(str, differences[1:]))}


NOW = trials.rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "results" / "prior_race.csv")
    options = parser.parse_args()
    lines = []
    for name in streams():
        for family in FAMILIES:
            lines.append(compared(name, family, options.draws))
            print(*lines[-1].values(), sep="  ", flush=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
