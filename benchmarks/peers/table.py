"""A table for each stream of peers.csv, as Markdown on standard output.

python benchmarks/peers/table.py [peers.csv]
"""

import csv
import sys
from itertools import groupby
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results"


def number(text: str, digits: int = 3) -> str:
    """Format a figure for the tables; empty for none."""
    return "" if text in ("", "nan") else f"{float(text):.{digits}f}"


def thousands(text: str) -> str:
    """Format a rate in thousands per second, with three digits."""
    return "" if text in ("", "nan") else f"{float(f'{float(text):.3g}') / 1e3:g}"


def caption(floors: dict[str, str], first: dict[str, str]) -> str:
    told = f"{float(first['rows']):,.0f} rows, {first['features']} features, {first['true_clusters']} clusters"
    if first["ceiling"] not in ("", "nan"):
        told += f"; the truth's own index {number(first['ceiling'])}"
    if floors:
        product, step = (thousands(floors[f"{name}_rows_per_cpu_s"]) for name in ("blas_product", "e_step"))
        told += f"; floors {product} k rows/s (product), {step} k (E-step)"
    return told


def index(row: dict[str, str]) -> str:
    """Format the agreement over the whole stream; for a drifting one, also the median window and the worst tenth."""
    whole = number(row["ari"])
    windows = [number(row[name]) for name in ("window_ari_median", "window_ari_tenth")]
    return f"{whole} ({', '.join(windows)})" if windows[0] else whole


def line(row: dict[str, str], usual: str) -> str:
    rows = "" if row["rows"] == usual else f" ({float(row['rows']):,.0f} rows)"
    cells = [row["learner"] + rows, row["rounds"], f"{float(row['clusters']):g}", index(row), number(row["nmi"])]
    cells += [number(row["short_of_truth_nats"]) or number(row["log_density"], 2)]
    cells += [thousands(row["learn_rows_per_cpu_s"]), thousands(row["predict_rows_per_cpu_s"])]
    return f"| {' | '.join([*cells, number(row['memory_above_data_mib'], 0)])} |"


def main() -> None:
    with (Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "peers.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    for workload, group in groupby(lines, key=lambda row: row["workload"]):
        rows = {row["learner"]: row for row in group}
        floors = rows.pop("floors", {})
        first = next(iter(rows.values()))
        drifts, real = bool(first["window_ari_median"]), first["ceiling"] in ("", "nan")
        shown = "agreement (median window, worst tenth)" if drifts else "agreement"
        density = "log density, nats" if real else "nats short of the truth"
        print(f"### {workload}\n\n{caption(floors, first)}.\n")
        print(
            f"| learner | rounds | clusters | {shown} | NMI | {density} | learns, k rows/s | predicts, k rows/s | MiB |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        print("\n".join(line(row, first["rows"]) for row in rows.values()) + "\n")


if __name__ == "__main__":
    main()
