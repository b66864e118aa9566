"""Moved to `harness.redis_server`."""

from harness.redis_server import *  # noqa: F403
