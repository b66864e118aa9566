"""The library's dealings with its process: compiled kernels and their cache on disk, compiling, threads of BLAS.

No other room imports `os`, `pathlib` or `threading`.
"""
