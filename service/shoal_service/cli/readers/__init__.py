"""Files of points, read in chunks: npy and npz (also sparse), csv, ndjson, Parquet."""

from shoal_service.cli.readers.files import PointFile, ReadOptions, open_points

__all__ = ["PointFile", "ReadOptions", "open_points"]
