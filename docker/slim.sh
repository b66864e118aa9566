#!/bin/sh
# Deletes from a virtual environment what runs nothing: the installers, the tests and headers of packages, and compiled
# bytecode that the kernels' compilation does not write again. Used by the build: slim.sh /opt/shoal
set -eu
"$1/bin/python" -m pip uninstall --quiet --yes hatchling pathspec trove-classifiers setuptools
"$1/bin/python" -m pip uninstall --quiet --yes pip
cd "$1"/lib/python3*/site-packages
for package in joblib llvmlite numba numpy pyarrow scipy sklearn; do
    [ -d "$package" ] || continue
    find "$package" -depth -type d \( -name tests -o -name __pycache__ \) -exec rm -rf {} +
    find "$package" -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.h' -o -name '*.hpp' -o -name '*.cpp' \) -delete
done
# Arrow's RPC and its clients of cloud storage. Reading a stream or a file needs none of them.
rm -rf pyarrow/include pyarrow/src pyarrow/libarrow_flight* pyarrow/_flight* pyarrow/libarrow_s3* pyarrow/_s3fs* \
    pyarrow/libarrow_python_flight*
