"""Frames of the dashboard: how much processor time one drawing of the map and of the life lines costs.

Run: python benchmarks/service/dashboard_frames.py   (needs Chromium on the path, and the package playwright)

Headless Chromium, without a graphics card, and this script share one core. The map has 20,000 points and 1,000 ellipses
and moves in every frame; the life lines are 1,000 that live and 2,000 that ended, and scroll in every frame. A frame is
whatever `requestAnimationFrame` gives, for `SECONDS`. Its cost is the processor time of all processes of the browser,
so that a busy machine changes the frames a second and hardly the cost: below 33 ms means 30 frames a second on a core
of one's own. `draw ms, median` is that of `performance.now()` around one drawing, before the browser paints. `hover`
finds what is under the pointer, `read` parses a whole answer.
"""

import csv
import http.server
import json
import os
import platform
import shutil
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "dashboard_frames.csv"
SECONDS, TURNS = 6, 3
PAGE = """<!doctype html><link rel="stylesheet" href="/static/dashboard/base.css">
<div id="box" style="width:1248px;height:570px"><canvas id="c" width="1248" height="570"></canvas></div>"""

SET_UP = """async () => {
    const [layers, draw, port, life, lives, hover] = await Promise.all(
        ["point_layer", "map_draw", "viewport", "life_draw", "lives", "hover"].map(
            name => import(`/static/dashboard/${name}.js`)));
    const {inks} = await import("/static/dashboard/colours.js");
    let seed = 7;
    const random = () => (seed = (1103515245 * seed + 12345) % 2147483648) / 2147483648;
    const normal = () => Math.sqrt(-2 * Math.log(random() + 1e-12)) * Math.cos(2 * Math.PI * random());
    const [K, N] = [1000, 20000];
    const ids = [...Array(K).keys()];
    const x = ids.map(() => 40 * normal()), y = ids.map(() => 40 * normal());
    const components = {ids, weight: ids.map(() => 1 / K), mass: ids.map(() => 20), born_at: ids, last_seen_at: ids,
        x, y,
        xx: ids.map(() => 1 + random()), xy: ids.map(() => 0.4 * normal()), yy: ids.map(() => 1 + random())};
    const of = [...Array(N).keys()].map(() => Math.floor(K * random()));
    const points = {x: of.map(k => x[k] + normal()), y: of.map(k => y[k] + normal()), components: of,
        novelty: of.map(() => 0.01), log_density: of.map(() => -4.2), log_offsets: [...of.keys()],
        keys: of.map(() => null)};
    const clusterOf = new Map(ids.map(k => [k, k % 100]));
    const events = [];
    for (let k = 0; k < 3000; k++) {
        const parents = k % 3 || k === 0 ? [] : [k - 1];
        const born = {kind: "born", points_seen: 10 * k, parents, children: [...parents, k], id: ""};
        const merged = {kind: "merged", points_seen: 10 * k + 5, parents: [k, k - 1000], children: [k], id: ""};
        events.push(born, ...(k < 1000 ? [] : [merged]));
    }
    const alive = [...Array(1000).keys()].map(k => k + 2000);
    const course = lives.livesOf(events, {ids: alive, born_at: alive.map(k => 10 * k)}, 30000);
    const held = {components, points, plane: {}};
    window.bench = {layers, draw, port, life, course, hover, inks: inks(), clusterOf, held, alive};
}"""

FRAMES = """async ([what, seconds]) => {
    const b = window.bench, canvas = document.getElementById("c"), context = canvas.getContext("2d");
    const look = {clusterOf: b.clusterOf, selected: 3, hovered: null, point: null, inks: b.inks, labels: new Map(),
        weights: new Map(b.alive.map(k => [k, 0.001]))};
    const view = new b.port.Viewport();
    view.resize(1248, 570);
    view.fit({left: -120, right: 120, bottom: -120, top: 120});
    const layer = new b.layers.PointLayer();
    const frame = {width: 1248, height: 570, scroll: 0, lane: 9, from: 0, to: 30000};
    const paint = {
        map: i => {
            view.pan(2 * Math.sin(i / 9), 1);
            view.zoom(i % 40 < 20 ? 1.02 : 1 / 1.02);
            b.draw.drawMap(context, b.held, view, look, layer);
        },
        life: i => { frame.scroll = (7 * i) % 4000; b.life.drawLives(context, b.course, frame, look); },
        nothing: () => {},
    }[what];
    const until = performance.now() + 1000 * seconds;
    const drawn = [];
    while (performance.now() < until) {
        await new Promise(requestAnimationFrame);
        const began = performance.now();
        paint(drawn.length);
        drawn.push(performance.now() - began);
    }
    const frames = drawn.length;
    return [frames, drawn.sort((a, b) => a - b)[frames >> 1]];
}"""

ONCE = """() => {
    const b = window.bench, view = new b.port.Viewport();
    view.resize(1248, 570);
    view.fit({left: -120, right: 120, bottom: -120, top: 120});
    const taken = [...Array(200).keys()].map(i => {
        const began = performance.now();
        b.hover.under(b.held, view, 6 * i, 300);
        return performance.now() - began;
    });
    const hover = taken.sort((a, b) => a - b)[100];
    const text = JSON.stringify(b.held);
    const began = performance.now();
    JSON.parse(text);
    return [hover, performance.now() - began, text.length];
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def main() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    serve = partial(Quiet, directory=str(ROOT / "service" / "shoal_service"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        url = f"http://127.0.0.1:{server.server_port}"
        page.route("**/bench", lambda route: route.fulfill(body=PAGE, content_type="text/html"))
        page.goto(f"{url}/bench")
        page.evaluate(SET_UP)
        rows = [measured(page, what) for _ in range(TURNS) for what in ("nothing", "map", "life")]
        hover_ms, read_ms, size = page.evaluate(ONCE)
        browser.close()
    print(f"hover, median of 200: {hover_ms:.2f} ms; read an answer of {size / 1e6:.1f} MB: {read_ms:.1f} ms")
    with RESULTS.open("w", newline="") as file:
        out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        out.writeheader()
        out.writerows(rows)


def measured(page: Any, what: str) -> dict[str, Any]:
    before, began = spent(), time.monotonic()
    frames, draw_ms = page.evaluate(FRAMES, [what, SECONDS])
    cost = (spent() - before) / frames
    row = {
        "shown": what,
        "frames a second": round(frames / (time.monotonic() - began), 1),
        "CPU ms a frame": round(1000 * cost, 2),
        "draw ms, median": round(draw_ms, 2),
        "load": round(os.getloadavg()[0], 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
    }
    print(json.dumps(row))
    return row


def spent() -> float:
    """Processor seconds of all processes that this one has started."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


if __name__ == "__main__":
    main()
