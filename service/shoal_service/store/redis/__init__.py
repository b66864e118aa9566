"""The store on a Redis server that several processes share. Importing it loads the Redis client."""

from shoal_service.store.redis.inspect import inspect_server
from shoal_service.store.redis.server_checks import Durability
from shoal_service.store.redis.store import RedisStore

__all__ = ["Durability", "RedisStore", "inspect_server"]
