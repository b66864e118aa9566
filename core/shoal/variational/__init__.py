"""Batch variational engines: VDP and Fast-VDP, tied to the whole process, and the truncated and collapsed methods."""

from shoal.variational.collapsed import fit_cfsd, fit_ctsb, fit_o_ctsb
from shoal.variational.fast_vdp import fit_fast_vdp
from shoal.variational.truncated import fit_fsd, fit_o_tsb, fit_tsb
from shoal.variational.vdp import fit_vdp

__all__ = [
    "fit_cfsd",
    "fit_ctsb",
    "fit_fast_vdp",
    "fit_fsd",
    "fit_o_ctsb",
    "fit_o_tsb",
    "fit_tsb",
    "fit_vdp",
]
