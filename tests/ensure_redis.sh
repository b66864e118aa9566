#!/bin/sh
# A redis-server for the tests: the one on PATH, else, as root on Debian, its package (never sudo, never started as a
# service), else nothing: the tests that need it are then skipped and say what to run.
command -v redis-server >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing redis-server for the tests"
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    { apt-get install -y -qq --no-install-recommends redis-server ||
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends redis-server; }; } >/dev/null 2>&1 && exit 0
    echo "redis-server could not be installed" >&2
fi
[ "$SHOAL_REQUIRE_REDIS" = 1 ] && { echo "SHOAL_REQUIRE_REDIS=1, and there is no redis-server" >&2; exit 1; }
exit 0
