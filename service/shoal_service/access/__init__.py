"""Access keys: what a key allows, who sends a request, and which keys are in force."""

from shoal_service.access.control import BOOTSTRAP_ID, AccessControl, CreatedKey, KeyRecord
from shoal_service.access.expiry import parse_expiry
from shoal_service.access.grants import Grant, Limits, Scope, check_key_name
from shoal_service.access.meter import Meter
from shoal_service.access.requirements import (
    ADMIN,
    ADMIN_SERVICE,
    ANYONE,
    OPEN,
    READ,
    READ_LISTED,
    READ_SERVICE,
    WRITE,
    WRITE_AUDITED,
    Caller,
    Reach,
    Requirement,
)
from shoal_service.access.secret_keys import admin_key_of

__all__ = [
    "ADMIN",
    "ADMIN_SERVICE",
    "ANYONE",
    "BOOTSTRAP_ID",
    "OPEN",
    "READ",
    "READ_LISTED",
    "READ_SERVICE",
    "WRITE",
    "WRITE_AUDITED",
    "AccessControl",
    "Caller",
    "CreatedKey",
    "Grant",
    "KeyRecord",
    "Limits",
    "Meter",
    "Reach",
    "Requirement",
    "Scope",
    "admin_key_of",
    "check_key_name",
    "parse_expiry",
]
