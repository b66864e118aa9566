"""Batch variational engines: VDP and Fast-VDP for the infinite process, and the truncated and collapsed methods.

Names load on first use, because a refinement needs a few modules of this package and none of its engines.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "fit_cfsd": "collapsed",
    "fit_ctsb": "collapsed",
    "fit_fast_vdp": "fast_vdp",
    "fit_fsd": "truncated",
    "fit_o_ctsb": "collapsed",
    "fit_o_tsb": "truncated",
    "fit_tsb": "truncated",
    "fit_vdp": "vdp",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
