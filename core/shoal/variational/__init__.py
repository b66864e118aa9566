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
    from shoal.variational.rounds import stick_fit
    from shoal.variational.tree import (
        LeafSums,
        Planes,
        Tree,
        added,
        cells_of,
        grow_tree,
        leaf_sums_of,
        leaves,
        planes_of,
        tree_of,
    )
    from shoal.variational.tree_fit import Known, TreeFit, TreeSearch, fit_tree, leaf_log_norms, split_leaves
    from shoal.variational.truncated import fit_fsd, fit_o_tsb, fit_tsb, seeded_resp
    from shoal.variational.vdp import fit_vdp

__all__ = [
    "Cells",
    "CountMoments",
    "Known",
    "Labels",
    "LeafSums",
    "NodeFamily",
    "Planes",
    "Sticks",
    "Symmetric",
    "Tree",
    "TreeFit",
    "TreeSearch",
    "added",
    "cells_of",
    "count_moments",
    "fit_cfsd",
    "fit_ctsb",
    "fit_fast_vdp",
    "fit_fsd",
    "fit_o_ctsb",
    "fit_o_tsb",
    "fit_tree",
    "fit_tsb",
    "fit_vdp",
    "grow_tree",
    "leaf_log_norms",
    "leaf_sums_of",
    "leaves",
    "node_past",
    "node_rows",
    "planes_of",
    "seeded_resp",
    "split_leaves",
    "stick_fit",
    "taylor_sweep_inplace",
    "tree_of",
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
    "LeafSums": "tree",
    "Planes": "tree",
    "Tree": "tree",
    "added": "tree",
    "cells_of": "tree",
    "grow_tree": "tree",
    "leaf_sums_of": "tree",
    "leaves": "tree",
    "planes_of": "tree",
    "tree_of": "tree",
    "stick_fit": "rounds",
    "Known": "tree_fit",
    "TreeFit": "tree_fit",
    "TreeSearch": "tree_fit",
    "fit_tree": "tree_fit",
    "leaf_log_norms": "tree_fit",
    "split_leaves": "tree_fit",
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
