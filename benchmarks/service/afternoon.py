"""Two services to compare with: one that can be written in an afternoon, and one with an empty handler.

    python benchmarks/service/afternoon.py kmeans|empty PORT

Both run under the uvicorn settings of `shoal serve`.
"""

import sys
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sklearn.cluster import MiniBatchKMeans


class Batch(BaseModel):
    """A JSON body."""

    points: list[list[float]]


def kmeans() -> FastAPI:
    """Learn JSON bodies with MiniBatchKMeans, told the number of clusters, before the answer. Nothing is stored."""
    app = FastAPI()
    model = MiniBatchKMeans(n_clusters=10, random_state=0)

    @app.post("/ingest")
    async def ingest(batch: Batch) -> dict[str, int]:
        model.partial_fit(np.array(batch.points))
        return {"accepted": len(batch.points)}

    return app


def empty() -> FastAPI:
    """Return an application with one handler that does nothing."""
    app = FastAPI()

    @app.get("/empty")
    async def nothing() -> dict[str, Any]:
        return {}

    return app


if __name__ == "__main__":
    uvicorn.run(
        {"kmeans": kmeans, "empty": empty}[sys.argv[1]](),
        port=int(sys.argv[2]),
        loop="uvloop",
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
    )
