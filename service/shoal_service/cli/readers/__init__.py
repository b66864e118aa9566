"""Files of points, read in chunks: npy and npz (also sparse), csv, ndjson, Parquet, Arrow."""

from shoal_service.cli.readers.bad_rows import BadRowError, BadRows
from shoal_service.cli.readers.categories import Categories
from shoal_service.cli.readers.chunk import Chunk
from shoal_service.cli.readers.files import PointFile, ReadOptions, open_points

__all__ = ["BadRowError", "BadRows", "Categories", "Chunk", "PointFile", "ReadOptions", "open_points"]
