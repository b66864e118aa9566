"""Data sets from names of files: npy files, mapped into memory, and whatever `pyarrow.dataset` reads."""

from collections.abc import Sequence
from typing import Any

from shoal.errors import InputError, NoPointsError, SettingError, ShapeError
from shoal.offline.arrow_rows import open_arrow, open_arrow_files
from shoal.offline.dataset import Dataset
from shoal.offline.npy_rows import open_npy
from shoal.runtime.files import files_of, folder_in_common, is_file_name

_NPY = "npy"
_FORMATS = {_NPY: _NPY, "parquet": "parquet", "pq": "parquet", "arrow": "ipc", "feather": "ipc"}
"""Formats by the end of a file's name: npy, and those of `pyarrow.dataset`."""


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
    return _named(found)


def open_dataset_like(source: Any, names: Sequence[str] | None) -> Dataset:
    """The data set of a source for a fit with these features: by their names, by place where either has no names.

    Raises as `open_dataset` does, and ShapeError for an open data set with other names.
    """
    is_open = isinstance(source, Dataset) or _is_arrow(source)
    without_names = not is_open and _files_of(source)[1] == _NPY
    found = open_dataset(source, None if without_names or names is None else list(names))
    if names is not None and found.names not in (None, tuple(names)):
        raise ShapeError(
            f"the data set has the columns {', '.join(found.names)}, the fit {', '.join(names)}; open those"
        )
    return found


def _dataset_of_files(source: Any, columns: Sequence[str] | None) -> Dataset:
    paths, kind = _files_of(source)
    if kind != _NPY:
        return open_arrow_files(paths, kind, columns)
    if columns is not None:
        raise SettingError(f"columns are chosen by name, {', '.join(columns)}, but npy files have no names")
    return open_npy(paths)


def _files_of(source: Any) -> tuple[list[str], str]:
    """The files of a source, and their format: npy, or one of `pyarrow.dataset`. Raises InputError."""
    paths = files_of([source] if is_file_name(source) else list(source), tuple(_FORMATS))
    endings = {path.rpartition(".")[2].lower() for path in paths}
    formats = {_FORMATS.get(ending) for ending in endings}
    kind = formats.pop()
    if formats or kind is None:
        raise InputError(
            f"the files have the endings {', '.join(sorted(endings))}; give files of one format: npy, Parquet or Arrow"
        )
    return paths, kind


def _named(found: Dataset) -> Dataset:
    """The data set with its files named within their folder."""
    names = folder_in_common([file.path for file in found.files])
    return found._replace(files=tuple(file._replace(name=name) for file, name in zip(found.files, names, strict=True)))


def _is_arrow(source: Any) -> bool:
    """Whether it is a `pyarrow.dataset.Dataset`, without a load of pyarrow."""
    return any(kind.__module__ == "pyarrow._dataset" and kind.__name__ == "Dataset" for kind in type(source).__mro__)
