"""Data sets from names of files: npy files, mapped into memory, and whatever `pyarrow.dataset` reads."""

from collections.abc import Sequence
from typing import Any

from shoal.errors import InputError, NoPointsError, SettingError
from shoal.offline.arrow_rows import open_arrow, pyarrow_dataset
from shoal.offline.dataset import Dataset
from shoal.offline.npy_rows import open_npy
from shoal.runtime.files import files_of, folder_in_common, is_file_name

_ARROW_FORMATS = {"parquet": "parquet", "pq": "parquet", "arrow": "ipc", "feather": "ipc"}
"""Formats of `pyarrow.dataset` by the end of a file's name."""


def is_dataset(source: Any) -> bool:
    """Whether a source names files, or is a data set: not an array, a table or a data frame."""
    if isinstance(source, Dataset):
        return True
    if isinstance(source, list | tuple):
        return len(source) > 0 and all(map(is_file_name, source))
    return is_file_name(source) or _is_arrow(source)


def open_dataset(source: Any, columns: Sequence[str] | None = None) -> Dataset:
    """The data set of a file, a folder, a glob, a list of these, or a `pyarrow.dataset.Dataset`.

    Files end in npy, parquet, pq, arrow or feather, and all are read alike. A folder stands for all such files in it
    and below. Files are in the order of their names. `columns` names the features of files with named columns; None:
    all columns. A single column of lists of one length holds all features. Only heads of files are read.

    Raises InputError for files that cannot be read or do not agree, NoPointsError without rows, SettingError for
    columns.
    """
    if isinstance(source, Dataset):
        return source
    found = open_arrow(source, columns) if _is_arrow(source) else _dataset_of_files(source, columns)
    if found.n_rows == 0:
        raise NoPointsError(f"{source} has no rows; give files that have some")
    return found


def _dataset_of_files(source: Any, columns: Sequence[str] | None) -> Dataset:
    sources = [source] if is_file_name(source) else list(source)
    paths = files_of(sources, ("npy", *_ARROW_FORMATS))
    kinds = {path.rpartition(".")[2].lower() for path in paths}
    if kinds == {"npy"}:
        if columns is not None:
            raise SettingError(f"columns are chosen by name, {', '.join(columns)}, but npy files have no names")
        return _named(open_npy(paths))
    formats = {_ARROW_FORMATS.get(kind) for kind in kinds}
    if len(formats) > 1 or None in formats:
        endings = ", ".join(sorted(kinds))
        raise InputError(f"the files have the endings {endings}; give files of one format: npy, Parquet or Arrow")
    arrow = pyarrow_dataset()
    try:
        return _named(open_arrow(arrow.dataset(paths, format=formats.pop()), columns))
    except (OSError, arrow.pa.ArrowException) as error:
        raise InputError(f"{paths[0]} is not a usable file: {str(error).splitlines()[0]}") from error


def _named(found: Dataset) -> Dataset:
    """The data set with its files named within their folder."""
    names = folder_in_common([file.path for file in found.files])
    return found._replace(files=tuple(file._replace(name=name) for file, name in zip(found.files, names, strict=True)))


def _is_arrow(source: Any) -> bool:
    """Whether it is a `pyarrow.dataset.Dataset`, without a load of pyarrow."""
    return any(kind.__module__ == "pyarrow._dataset" and kind.__name__ == "Dataset" for kind in type(source).__mro__)
