"""Lua scripts, read from the files beside this module and named by their digest, as Redis names them.

A file in `lua/` holds the scripts of one idea. The line `--- script: NAME FLAGS` starts each of them. `common.lua` is
put in front of every script.
"""

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from shoal_service.store import rules
from shoal_service.store.redis.connection import Command, Word

_FILES = ("access", "append", "blobs", "checkpoint", "documents", "lease", "records", "registry", "view", "writer")
_HEADER = re.compile(r"^--- script: (\w+)[ ]?(\S*)$", re.MULTILINE)


class Script(NamedTuple):
    """Script in the form that Redis gets."""

    text: bytes
    sha: str

    def command(self, keys: tuple[str, ...], *arguments: Word) -> Command:
        """Return the command that runs it."""
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


@cache
def scripts() -> dict[str, Script]:
    """Read all scripts, by name."""
    folder = files("shoal_service.store.redis") / "lua"
    common = (folder / "common.lua").read_text("utf-8")
    found: dict[str, Script] = {}
    for file in _FILES:
        parts = _HEADER.split((folder / f"{file}.lua").read_text("utf-8"))[1:]
        for name, flags, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            first = f"#!lua flags={flags}\n" if flags else ""
            text = f"{first}{common}{body}".encode()
            found[name] = Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())
    return found


def script(name: str) -> Script:
    """Return one script."""
    return scripts()[name]


def load_commands() -> list[Command]:
    """Return the commands that load all scripts into a server."""
    return [("SCRIPT", "LOAD", script.text) for script in scripts().values()]


def accept(
    reply: list[Any], name: str, incarnation: str, epoch: int = 0, position: tuple[str, int] = ("", 0)
) -> list[Any]:
    """Return the reply of a script that succeeded, or raise the error that the reply stands for."""
    match reply[0]:
        case b"ok":
            return reply
        case b"gone":
            raise rules.gone(name, incarnation)
        case b"stale":
            rules.check_epoch(name, epoch, reply[1])
        case b"beyond":
            rules.check_within_log(name, *position, reply[1])
    raise AssertionError(f"a script replied {reply!r}")


def row_hash(*fields: bytes) -> bytes:
    """Return the hash of a row, as the function of this name in common.lua."""
    return hashlib.sha1(b" ".join(fields), usedforsecurity=False).hexdigest()[:8].encode()
