"""Kurihara, Welling and Vlassis (2006), figures 1 and 2: VDP and Fast-VDP on ten Gaussians.

    python benchmarks/papers/fast_vdp_figures.py [--quick] [--figure 1 2] [--sweep points features separation]

Figure 1 has Blei and Jordan's truncated method (BJ, here `tsb` with T = 20), VDP by the paper's rule, and Fast-VDP, on
1,000 to 5,000 points in 16-D, c = 2. Figure 2 has up to a million points (D = 16, c = 2), and c = 1 to 4 and D = 8 to
128 with 20,000 points.

- `times_...`: CPU seconds of the other method divided by those of Fast-VDP with its tree.
- `ratio_...`: free energy of Fast-VDP divided by the other's. Both bound the same evidence; above one is worse.
- `vdp_paper`: VDP by the paper's rule, one split at a time; candidates are tried on at most 2,000 of their points.
- `vdp_all`: the same, with candidates tried on all of their points (up to 100,000).
- `vdp_best`: the default VDP of the library.
- `..._coarse`: a tree of 200 leaves instead of 500.

The prior is `synthetic.prior_for`, and the concentration 1. CPU seconds are medians of three fits in figure 1. In
figure 2 they are medians of three fits for Fast-VDP, and single fits for VDP. There are five data sets for each size in
figure 1, three in figure 2, and one of a million points. The full form takes an hour; `--points` and `--features`
select sizes.
"""

import statistics
from argparse import Namespace
from collections.abc import Callable

import numpy as np
from record import Table, by_size, floats, options, path_of, plot, timed
from synthetic import prior_for, ten_gaussians

from shoal.mixture import BatchFit, log_density
from shoal.variational import fit_fast_vdp, fit_tsb, fit_vdp

TRUNCATION = 20
SWEEPS = {
    "points": [(n, 16, 2.0) for n in (1_000, 10_000, 100_000, 1_000_000)],
    "separation": [(20_000, 16, c) for c in (1.0, 2.0, 3.0, 4.0)],
    "features": [(20_000, d, 2.0) for d in (8, 16, 32, 64, 128)],
}
QUICK = {
    "points": [(n, 16, 2.0) for n in (1_000, 10_000, 100_000)],
    "separation": [(20_000, 16, c) for c in (1.0, 2.0, 3.0, 4.0)],
    "features": [(20_000, d, 2.0) for d in (8, 16, 32)],
}
TINY = {"points": [(300, 4, 2.0)], "separation": [], "features": []}
PAPER_TIMES = {("points", 1_000_000): 154.0}
ALL_POINTS_UP_TO = 100_000
COARSE = 200
"""Leaves of a coarser tree, tried beside the default's 500 in the sweep of points."""
COLUMNS_1 = (
    "points seed fast_cpu_s vdp_paper_cpu_s vdp_best_cpu_s bj_cpu_s times_vdp_paper times_vdp_best times_bj "
    "paper_times_vdp paper_times_bj ratio_vdp_paper ratio_vdp_best components_fast components_vdp components_vdp_best "
    "held_out_fast held_out_vdp held_out_vdp_best held_out_bj held_out_truth"
)
COLUMNS_2 = (
    "sweep points features separation seed fast_cpu_s vdp_paper_cpu_s vdp_best_cpu_s vdp_all_cpu_s times_vdp_paper "
    "times_vdp_best times_vdp_all paper_times fast_coarse_cpu_s times_vdp_paper_coarse ratio_vdp_paper_coarse "
    "ratio_vdp_paper ratio_vdp_best components_fast components_vdp_paper "
    "components_vdp_best nodes nats_a_point_fast nats_a_point_vdp_paper nats_a_point_vdp_best"
)


def median_of(repeats: int, work: Callable[[], BatchFit]) -> tuple[BatchFit, float]:
    runs = [timed(work) for _ in range(repeats)]
    return runs[0][0], statistics.median(seconds for _, seconds in runs)


def figure_1(arguments: Namespace) -> None:
    table = Table(path_of(arguments, "fast_vdp_figure_1", ".csv"), COLUMNS_1, ("points", "seed"))
    for n in by_size(arguments, (1_000, 2_000, 3_000, 4_000, 5_000), (1_000, 5_000), (200,)):
        for seed in range(by_size(arguments, 5, 2, 1)):
            _row_1(table, n, arguments.seed + seed)
    _draw_1(arguments, table)


def _row_1(table: Table, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth, prior = ten_gaussians(16, 2.0, rng), prior_for(16)
    x, test = truth.draw(n, rng), truth.draw(2_000, rng)

    def fit(engine: Callable[..., BatchFit], **settings: object) -> tuple[BatchFit, float]:
        return median_of(3, lambda: engine(prior, x, concentration=1.0, rng=np.random.default_rng(seed), **settings))

    fast, fast_s = fit(fit_fast_vdp)
    slow, slow_s = fit(fit_vdp, moves="paper")
    best, best_s = fit(fit_vdp)
    bj, bj_s = fit(fit_tsb, truncation=TRUNCATION)
    table.add(
        points=n,
        seed=seed,
        fast_cpu_s=fast_s,
        vdp_paper_cpu_s=slow_s,
        vdp_best_cpu_s=best_s,
        bj_cpu_s=bj_s,
        times_vdp_paper=slow_s / fast_s,
        times_vdp_best=best_s / fast_s,
        times_bj=bj_s / fast_s,
        paper_times_vdp=3.0 if n == 5_000 else "",
        paper_times_bj=23.0 if n == 5_000 else "",
        ratio_vdp_paper=fast.elbo / slow.elbo,
        ratio_vdp_best=fast.elbo / best.elbo,
        components_fast=len(fast.log_weight),
        components_vdp=len(slow.log_weight),
        components_vdp_best=len(best.log_weight),
        held_out_fast=float(log_density(prior, fast, test).mean()),
        held_out_vdp=float(log_density(prior, slow, test).mean()),
        held_out_vdp_best=float(log_density(prior, best, test).mean()),
        held_out_bj=float(log_density(prior, bj, test).mean()),
        held_out_truth=float(truth.log_density(test).mean()),
    )


def figure_2(arguments: Namespace) -> None:
    key = ("sweep", "points", "features", "separation", "seed")
    table = Table(path_of(arguments, "fast_vdp_figure_2", ".csv"), COLUMNS_2, key)
    for sweep in arguments.sweep:
        places = by_size(arguments, SWEEPS, QUICK, TINY)[sweep]
        wanted = [p for p in places if p[0] in (arguments.points or p[:1]) and p[1] in (arguments.features or p[1:2])]
        for n, d, c in wanted:
            for seed in range(arguments.seeds or by_size(arguments, 3 if n <= 100_000 else 1, 1, 1)):
                _row_2(table, sweep, n, d, c, arguments.seed + seed)
    _draw_2(arguments, table)


def _row_2(table: Table, sweep: str, n: int, d: int, c: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    prior, x = prior_for(d), ten_gaussians(d, c, rng).draw(n, rng)

    def fit(repeats: int, engine: Callable[..., BatchFit], **settings: object) -> tuple[BatchFit, float]:
        return median_of(
            repeats, lambda: engine(prior, x, concentration=1.0, rng=np.random.default_rng(seed), **settings)
        )

    fast, fast_s = fit(3, fit_fast_vdp, point_resp=False)
    paper, paper_s = fit(1, fit_vdp, moves="paper")
    best, best_s = fit(1, fit_vdp)
    row = {
        "sweep": sweep,
        "points": n,
        "features": d,
        "separation": c,
        "seed": seed,
        "fast_cpu_s": fast_s,
        "vdp_paper_cpu_s": paper_s,
        "vdp_best_cpu_s": best_s,
        "times_vdp_paper": paper_s / fast_s,
        "times_vdp_best": best_s / fast_s,
        "paper_times": PAPER_TIMES.get((sweep, n), ""),
        "ratio_vdp_paper": fast.elbo / paper.elbo,
        "ratio_vdp_best": fast.elbo / best.elbo,
        "components_fast": len(fast.log_weight),
        "components_vdp_paper": len(paper.log_weight),
        "components_vdp_best": len(best.log_weight),
        "nodes": int(fast.extra["nodes"][0]),
        "nats_a_point_fast": fast.elbo / n,
        "nats_a_point_vdp_paper": paper.elbo / n,
        "nats_a_point_vdp_best": best.elbo / n,
    }
    if sweep == "points" and n <= ALL_POINTS_UP_TO:
        _, row["vdp_all_cpu_s"] = fit(1, fit_vdp, moves="paper", candidate_points=None)
        row["times_vdp_all"] = row["vdp_all_cpu_s"] / fast_s
    if sweep == "points":
        coarse, row["fast_coarse_cpu_s"] = fit(3, fit_fast_vdp, point_resp=False, leaf_points=max(20.0, n / COARSE))
        row["times_vdp_paper_coarse"] = paper_s / row["fast_coarse_cpu_s"]
        row["ratio_vdp_paper_coarse"] = coarse.elbo / paper.elbo
    table.add(**row)


def _draw_1(arguments: Namespace, table: Table) -> None:
    panels = []
    for words, names in (
        ("CPU s over those of Fast-VDP", {"VDP": "times_vdp_paper", "BJ": "times_bj"}),
        (
            "free energy over that of VDP",
            {"Fast-VDP, over the paper's rule": "ratio_vdp_paper", "over our best VDP": "ratio_vdp_best"},
        ),
    ):
        series = {label: _means(table.rows, "points", name) for label, name in names.items()}
        panels.append({"series": series, "x": "points", "y": words})
    panels[0]["marks"] = {"paper, 5,000 points: BJ 23": 23.0, "paper, 5,000 points: VDP 3": 3.0}
    plot(path_of(arguments, "fast_vdp_figure_1", ".png"), panels, "VDP, BJ and Fast-VDP on ten Gaussians, 16-D, c = 2")


def _draw_2(arguments: Namespace, table: Table) -> None:
    panels = []
    for sweep in SWEEPS:
        rows = table.where(sweep=sweep)
        if not rows:
            continue
        log = "" if sweep == "separation" else "x"
        times = {"VDP, paper's rule": _means(rows, sweep, "times_vdp_paper")}
        ratios = {
            "over VDP, paper's rule": _means(rows, sweep, "ratio_vdp_paper"),
            "over our best VDP": _means(rows, sweep, "ratio_vdp_best"),
        }
        marks = {"paper, a million points: 154": 154.0} if sweep == "points" else {}
        panels.append({"series": times, "x": sweep, "y": "times as fast as VDP", "log": log + "y", "marks": marks})
        panels.append({"series": ratios, "x": sweep, "y": "free energy ratio", "log": log})
    plot(path_of(arguments, "fast_vdp_figure_2", ".png"), panels, "Fast-VDP, tree included, and VDP on ten Gaussians")


def _means(rows: list[dict[str, str]], x: str, name: str) -> tuple[list[float], list[float]]:
    at = sorted({float(row[x]) for row in rows})
    return at, [statistics.mean(floats([row for row in rows if float(row[x]) == value], name)) for value in at]


def main() -> None:
    parser = options(__doc__, sweep=tuple(SWEEPS))
    parser.add_argument("--figure", nargs="+", type=int, choices=(1, 2), default=[1, 2])
    parser.add_argument("--seeds", type=int, help="data sets a place of figure 2 (3; a million points: 1)")
    parser.add_argument("--features", nargs="+", type=int, help="in figure 2, these numbers of features alone")
    parser.add_argument("--points", nargs="+", type=int, help="in figure 2, these numbers of points alone")
    arguments = parser.parse_args()
    if 1 in arguments.figure:
        figure_1(arguments)
    if 2 in arguments.figure:
        figure_2(arguments)


if __name__ == "__main__":
    main()
