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
    contents = contents_of(model)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": f"shoal {shoal.__version__}",
        "family": contents.family,
        "n_features": len(contents.location),
        "feature_names": None if contents.feature_names is None else list(contents.feature_names),
        "location": contents.location.tolist(),
        "scale": contents.scale.tolist(),
        "distribution": contents.predictive.distribution,
        "formula": FORMULAS[contents.predictive.distribution],
        "components": [
            {"id": int(contents.ids[row]), "mass": float(contents.masses[row]), **_row(contents, row)}
            for row in range(len(contents.ids))
        ],
        "new_component": _row(contents, len(contents.ids)),
    }
    return json.dumps(document, allow_nan=False)


def _row(contents: Contents, row: int) -> dict[str, Any]:
    arrays = {name: values[row].tolist() for name, values in contents.predictive.arrays.items()}
    return {"weight": float(contents.weights[row]), **arrays}
