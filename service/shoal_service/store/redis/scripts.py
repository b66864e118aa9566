"""The Lua scripts, read from the files beside this module and named by their digest, as Redis names them."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from shoal_service.store.redis.connection import Command, Word

NAMES = (
    "append", "checkpoint", "stage", "acquire", "mark", "letter", "begin", "wipe", "enrol", "swap",
    "blob", "drop", "job", "settle", "lead", "renew", "resign", "place", "publish", "labels",
)  # fmt: skip


class Script(NamedTuple):
    """One script as Redis gets it."""

    text: bytes
    sha: str

    def command(self, keys: tuple[str, ...], *arguments: Word) -> Command:
        """The command that runs it."""
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


@cache
def script(name: str) -> Script:
    """A script by the name of its file. A line `#!lua` with flags must stay the first one."""
    folder = files("shoal_service.store.redis") / "lua"
    prelude = (folder / "prelude.lua").read_text("utf-8")
    body = (folder / f"{name}.lua").read_text("utf-8")
    first, _, rest = body.partition("\n")
    text = "\n".join([first, prelude, rest] if first.startswith("#!") else [prelude, body]).encode()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def load_commands() -> list[Command]:
    """The commands that make all of them known to a server."""
    return [("SCRIPT", "LOAD", script(name).text) for name in NAMES]
