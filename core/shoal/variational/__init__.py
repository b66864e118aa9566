"""Batch variational engines: VDP and Fast-VDP for the infinite process, and the truncated and collapsed methods.

Names load on first use, because a refinement needs a few modules of this package and none of its engines.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.variational.cells import Cells, NodeFamily, node_past, node_rows
    from shoal.variational.collapsed import fit_cfsd, fit_ctsb, fit_o_ctsb
    from shoal.variational.collapsed_kernel import taylor_sweep_inplace
    from shoal.variational.fast_vdp import fit_fast_vdp
    from shoal.variational.label_priors import Labels, Sticks, Symmetric
    from shoal.variational.poisson_binomial import CountMoments, count_moments
    from shoal.variational.tree import Tree, cells_of, grow_tree, leaves
    from shoal.variational.truncated import fit_fsd, fit_o_tsb, fit_tsb, seeded_resp
    from shoal.variational.vdp import fit_vdp

__all__ = [
    "Cells",
    "CountMoments",
    "Labels",
    "NodeFamily",
    "Sticks",
    "Symmetric",
    "Tree",
    "cells_of",
    "count_moments",
    "fit_cfsd",
    "fit_ctsb",
    "fit_fast_vdp",
    "fit_fsd",
    "fit_o_ctsb",
    "fit_o_tsb",
    "fit_tsb",
    "fit_vdp",
    "grow_tree",
    "leaves",
    "node_past",
    "node_rows",
    "seeded_resp",
    "taylor_sweep_inplace",
]

_HOMES = {
    "Cells": "cells",
    "NodeFamily": "cells",
    "node_past": "cells",
    "node_rows": "cells",
    "taylor_sweep_inplace": "collapsed_kernel",
    "Labels": "label_priors",
    "Sticks": "label_priors",
    "Symmetric": "label_priors",
    "CountMoments": "poisson_binomial",
    "count_moments": "poisson_binomial",
    "Tree": "tree",
    "cells_of": "tree",
    "grow_tree": "tree",
    "leaves": "tree",
    "seeded_resp": "truncated",
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
