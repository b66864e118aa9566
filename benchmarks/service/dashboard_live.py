"""Frames a second of the dashboard's map, as a person gets them: a real service, a real page, points arriving.

Run: python benchmarks/service/dashboard_live.py   (needs Chromium on the path, and the package playwright)

The stream has two features, about 1,000 components and 20,000 points, all of which the map shows; `--rate` more arrive
each second, and the page follows their events. Headless Chromium, without a graphics card, has core 0 for all of its
processes. The service, this script and whatever sends the points have the other cores. For `SECONDS` the page turns its
own wheel or drags its own map in every frame, and writes down the time that `requestAnimationFrame` gives. `CPU ms a
frame` is the processor time of all processes of the browser by the frames: it includes reading of answers, and a busy
machine hardly changes it.
"""

import argparse
import csv
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "dashboard_live.csv"
SECONDS, TURNS, PORT = 5, 3, 8794
URL = f"http://127.0.0.1:{PORT}"
SIDE, CLUSTERS, POINTS = 32, 1000, 20_000
PRIOR = {"mean": [155.0, 155.0], "mean_strength": 1e-4, "dof": 100.0, "scale": [[100.0, 0.0], [0.0, 100.0]]}

MOVES = """async ([what, seconds]) => {
    const box = document.querySelector(".map-box"), {left, top} = box.getBoundingClientRect();
    const pointer = (kind, x, y, more) => box.dispatchEvent(new PointerEvent(kind,
        {pointerId: 1, clientX: left + x, clientY: top + y, button: 0, bubbles: true, ...more}));
    box.setPointerCapture = () => {};
    const move = {
        zoom: i => box.dispatchEvent(new WheelEvent("wheel",
            {deltaY: i % 60 < 30 ? -15 : 15, clientX: left + 500, clientY: top + 250, cancelable: true})),
        pan: i => pointer("pointermove", 500 + 200 * Math.sin(i / 25), 250 + 100 * Math.cos(i / 40)),
        hover: i => pointer("pointermove", 500 + 200 * Math.sin(i / 25), 250 + 100 * Math.cos(i / 40)),
        nothing: () => {},
    }[what];
    if (what === "pan") pointer("pointerdown", 500, 350);
    const times = [await new Promise(requestAnimationFrame)];
    while (times.at(-1) < times[0] + 1000 * seconds) {
        move(times.length);
        times.push(await new Promise(requestAnimationFrame));
    }
    if (what === "pan") pointer("pointerup", 500, 350);
    document.querySelector(".tools button:last-of-type").click();
    return times;
}"""


def points(n: int, seed: int) -> list[list[float]]:
    at = np.arange(CLUSTERS)
    centres = 10 * np.stack([at % SIDE, at // SIDE], axis=1) + np.random.default_rng(1).uniform(-2, 2, (CLUSTERS, 2))
    rng = np.random.default_rng(seed)
    return (centres[rng.integers(CLUSTERS, size=n)] + rng.normal(size=(n, 2))).tolist()


def feed(rate: int, ended: threading.Event) -> None:
    """Send a tenth of `rate` points ten times a second."""
    seed = 1000
    with httpx.Client(base_url=URL, timeout=60) as client:
        while not ended.wait(0.1):
            seed += 1
            client.post("/streams/thousand/ingest", json={"points": points(rate // 10, seed)}).raise_for_status()


def serve(folder: str) -> subprocess.Popen[bytes]:
    """Start the service and make the stream. Waits until its points are learned."""
    shoal = Path(sys.executable).with_name("shoal")
    with Path(folder, "log").open("wb") as log:
        service = subprocess.Popen([shoal, "serve", "--port", str(PORT), "--data", folder], stdout=log, stderr=log)
    while True:
        try:
            if httpx.get(f"{URL}/readyz").status_code == 200:
                break
        except httpx.TransportError:
            pass
        if service.poll() is not None:
            raise RuntimeError(Path(folder, "log").read_text())
        time.sleep(0.2)
    settings = {"n_features": 2, "refinement": None, "concentration": 200.0, "prior": PRIOR}
    httpx.put(f"{URL}/streams/thousand", json=settings).raise_for_status()
    for seed in range(10):
        body = {"points": points(POINTS // 10, seed)}
        httpx.post(f"{URL}/streams/thousand/ingest", json=body, timeout=60).raise_for_status()
    while httpx.get(f"{URL}/streams/thousand").json()["points_seen"] < POINTS:
        time.sleep(0.2)
    return service


def spent(root: psutil.Process) -> float:
    """Processor seconds of a process and of all that it has started."""
    total = 0.0
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def browser_process() -> psutil.Process:
    """The browser, and not what drives it. Gives it and its processes core 0."""
    children = psutil.Process().children(recursive=True)
    found = next(
        one for one in children if "chrom" in one.name() and one.parent() and "chrom" not in one.parent().name()
    )
    for one in [found, *found.children(recursive=True)]:
        for thread in one.threads():
            os.sched_setaffinity(thread.id, {0})
    return found


def measured(page: Any, browser: psutil.Process, what: str, rate: int) -> dict[str, Any]:
    before = spent(browser)
    times = page.evaluate(MOVES, [what, SECONDS])
    cost = spent(browser) - before
    steps = sorted(np.diff(times).tolist())
    told = httpx.get(f"{URL}/streams/thousand").json()
    row = {
        "the map": what,
        "components": told["n_components"],
        "points a second": rate,
        "frames a second": round(1000 * len(steps) / sum(steps), 1),
        "median ms between frames": round(statistics.median(steps), 1),
        "95th percentile": round(steps[int(0.95 * len(steps))], 1),
        "longest": round(steps[-1], 1),
        "CPU ms a frame": round(1000 * cost / len(steps), 2),
        "load": round(os.getloadavg()[0], 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, the browser on one",
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=500, help="points a second that arrive while the map is moved")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, os.sched_getaffinity(0) - {0})
    ended, rows = threading.Event(), []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        service = serve(folder)
        try:
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = chromium.new_page(viewport={"width": 1280, "height": 800})
            page.goto(f"{URL}/#/s/thousand/map")
            page.get_by_label("Newest points").select_option(str(POINTS))
            page.locator(".tools .count", has_text=f"{POINTS:,} points").wait_for()
            process = browser_process()
            feeder = threading.Thread(target=feed, args=(arguments.rate, ended))
            feeder.start()
            rows = [
                measured(page, process, what, arguments.rate)
                for _ in range(TURNS)
                for what in ("nothing", "zoom", "pan", "hover")
            ]
            ended.set()
            feeder.join()
            chromium.close()
        finally:
            ended.set()
            service.terminate()
            service.wait()
    with RESULTS.open("w", newline="") as file:
        out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


if __name__ == "__main__":
    main()
