#!/bin/sh
# Looks for known weaknesses of the pinned packages with pip-audit: audit.sh PYTHON CONSTRAINTS
# Exits with 1 if there are any. Where pip-audit or its database cannot be reached, it says so and exits with 0.
set -eu
python=$1
constraints=$2
if ! "$python" -m pip_audit --version >/dev/null 2>&1; then
    "$python" -m pip install --quiet --disable-pip-version-check pip-audit 2>/dev/null || {
        echo "skipped: pip-audit is not installed and cannot be installed here" >&2
        exit 0
    }
fi
pinned=$(mktemp)
report=$(mktemp)
trap 'rm -f "$pinned" "$report"' EXIT
grep -E '^[A-Za-z0-9_.-]+==' "$constraints" >"$pinned"
if "$python" -m pip_audit --no-deps --disable-pip --requirement "$pinned" >"$report" 2>&1; then
    cat "$report"
elif grep -qiE '^Found [0-9]+ known' "$report"; then
    cat "$report"
    exit 1
else
    echo "skipped: the database of pip-audit does not answer: $(tail -n 1 "$report")" >&2
fi
