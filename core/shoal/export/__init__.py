"""Export of fitted mixtures: as JSON that any language can read, as ONNX with the extra `onnx`, samples for ArviZ.

    from shoal.export import to_json, to_onnx

    open("mixture.json", "w").write(to_json(model))
    open("mixture.onnx", "wb").write(to_onnx(model).SerializeToString())

`to_json` and `to_onnx` hold the mixture of posterior predictives at this moment, and compute what `predict`,
`score_samples` and `novelty` return. Learning needs the snapshot of `StreamingDPMixture.save`.
`to_inference_data`, with the extra `arviz`, gives the samples of a sampler.
"""

from shoal.export.inference_data import to_inference_data
from shoal.export.json_document import FORMAT, VERSION, to_json
from shoal.export.onnx_model import to_onnx
from shoal.families.portable import FORMULAS

__all__ = ["FORMAT", "FORMULAS", "VERSION", "to_inference_data", "to_json", "to_onnx"]
