"""Products of families over blocks of columns."""

from shoal.families.product.columns import Columns, blocks_of, canonical_text, is_text_of_product, mapping_of
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
    "product_class",
]
