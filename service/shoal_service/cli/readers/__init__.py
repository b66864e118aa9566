"""Files of points, read in chunks: npy and npz (sparse too), csv, ndjson, Parquet."""

from shoal_service.cli.readers.files import PointFile, ReadOptions, open_points

__all__ = ["PointFile", "ReadOptions", "open_points"]
