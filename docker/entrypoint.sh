#!/bin/sh
# Chooses the set of compiled kernels that this processor can run, then becomes `shoal "$@"`.
# Set NUMBA_CPU_NAME to choose another set: `generic` gives the same last bits on every machine.
set -eu
if [ -z "${NUMBA_CPU_NAME:-}" ]; then
    NUMBA_CPU_NAME=generic
    if [ "$(uname -m)" = x86_64 ]; then
        NUMBA_CPU_NAME=x86-64-v3
        flags=" $(grep -m1 '^flags' /proc/cpuinfo | cut -d: -f2) "
        for flag in avx avx2 bmi1 bmi2 f16c fma abm movbe; do
            case "$flags" in *" $flag "*) ;; *) NUMBA_CPU_NAME=generic ;; esac
        done
    fi
fi
case "$NUMBA_CPU_NAME" in
    # the features of this level; without them, Numba would add those of this machine
    x86-64-v3) NUMBA_CPU_FEATURES='+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe' ;;
    *) NUMBA_CPU_FEATURES='' ;;
esac
export NUMBA_CPU_NAME NUMBA_CPU_FEATURES
exec "${SHOAL_COMMAND:-shoal}" "$@"
