"""Products of families over blocks of columns."""

from shoal.families.product.columns import (
    Columns,
    blocks_of,
    canonical_text,
    is_text_of_product,
    mapping_of,
    names_given,
)
from shoal.families.product.domain import ProductDomain
from shoal.families.product.prior import ProductPrior, product_class

__all__ = [
    "Columns",
    "ProductDomain",
    "ProductPrior",
    "blocks_of",
    "canonical_text",
    "is_text_of_product",
    "mapping_of",
    "names_given",
    "product_class",
]
