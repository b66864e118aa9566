"""Export of fitted mixtures: as JSON that any language can read, and as ONNX, with the extra `onnx`.

    from shoal.export import to_json, to_onnx

    open("mixture.json", "w").write(to_json(model))
    open("mixture.onnx", "wb").write(to_onnx(model).SerializeToString())

Both hold the mixture of posterior predictives at this moment, and compute what `predict`, `score_samples` and `novelty`
return. Learning needs the snapshot of `StreamingDPMixture.save`.
"""

from shoal.export.json_document import FORMAT, VERSION, to_json
from shoal.export.onnx_model import to_onnx
from shoal.families.portable import FORMULAS

__all__ = ["FORMAT", "FORMULAS", "VERSION", "to_json", "to_onnx"]
