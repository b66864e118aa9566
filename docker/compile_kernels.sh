#!/bin/sh
# Compiles every kernel that the service uses, once for each set that docker/entrypoint.sh can choose. Used by the build.
set -eu
sets=generic
[ "$(uname -m)" != x86_64 ] || sets='generic x86-64-v3'
for cpu in $sets; do
    NUMBA_CPU_NAME=$cpu SHOAL_COMMAND=/opt/shoal/bin/python sh "$(dirname "$0")/entrypoint.sh" \
        "$(dirname "$0")/compile_kernels.py"
done
chmod -R a+rX,go-w "$SHOAL_KERNEL_CACHE"
