#!/bin/sh
# Make an access key of scope read for Prometheus, once: metrics_key.sh ADMIN_KEY_FILE KEY_FILE
# The key is in a volume that only Prometheus also mounts, as another user. So everybody in its container may read it.
set -eu
admin=$1 file=$2
if [ ! -s "$file" ]; then
    umask 022
    chmod 755 "$(dirname "$file")"
    SHOAL_API_KEY=$(cat "$admin") shoal keys create --name prometheus --scope read > "$file.new"
    mv "$file.new" "$file"
fi
