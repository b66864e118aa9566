"""JSON document of a mixture."""

import json
from typing import Any

import shoal
from shoal.export.contents import Contents, contents_of
from shoal.families.portable import FORMULAS

FORMAT = "shoal-mixture"
VERSION = 1
"""Rises when a reader of the document must change. New members may come without."""


def to_json(model: Any) -> str:
    """The mixture of a fitted estimator as a JSON document (see `docs/export.md`). Numbers are exact.

    Raises SettingError and NoPointsError as `contents_of`.
    """
    held = contents_of(model)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": f"shoal {shoal.__version__}",
        "family": held.family,
        "n_features": len(held.location),
        "feature_names": None if held.feature_names is None else list(held.feature_names),
        "location": held.location.tolist(),
        "scale": held.scale.tolist(),
        "distribution": held.predictive.distribution,
        "formula": FORMULAS[held.predictive.distribution],
        "components": [
            {"id": int(held.ids[row]), "mass": float(held.masses[row]), **_row(held, row)}
            for row in range(len(held.ids))
        ],
        "new_component": _row(held, len(held.ids)),
    }
    return json.dumps(document, allow_nan=False)


def _row(held: Contents, row: int) -> dict[str, Any]:
    arrays = {name: values[row].tolist() for name, values in held.predictive.arrays.items()}
    return {"weight": float(held.weights[row]), **arrays}
