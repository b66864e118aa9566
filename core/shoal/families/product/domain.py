"""The domain of points whose columns belong to several families."""

from dataclasses import dataclass
from typing import Any

from shoal.errors import OutsideDomainError
from shoal.points.arrays import Array
from shoal.points.domains import Domain
from shoal.points.rows import Points


@dataclass(frozen=True)
class ProductDomain(Domain):
    """Rows whose columns are in the domains of their blocks. Points have the form of tables."""

    parts: tuple[tuple[Domain, tuple[int, ...]], ...] = ()
    """Domain and columns of each block."""

    def example(self, location: Array) -> Array:
        """A point of the domain, as a table (1, D), made of those of the blocks."""
        row = location[None].copy()
        for domain, columns in self.parts:
            row[:, columns] = domain.example(location[list(columns)])
        return row

    def held(self, x: Any) -> Points:
        """Points (N, D) that have been checked before, as a table."""
        table: Points = x.toarray() if hasattr(x, "toarray") else x
        return table

    def _check_table(self, x: Array, holes: bool) -> None:
        """Raise OutsideDomainError for the first row that some block refuses."""
        faults = list[OutsideDomainError]()
        for domain, columns in self.parts:
            try:
                domain.check_columns(x, columns, holes=holes)
            except OutsideDomainError as error:
                faults.append(error)
        if faults:
            raise min(faults, key=lambda fault: fault.row or 0)
