"""What scripts and shells rely on: JSON from every command that answers, and completion in bash and fish."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from shoal_service.cli import app

RUN_UNTIL_STOPPED = ("shoal serve", "shoal connect ", "shoal export ")


def commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, set[str]]]:
    """Every command, with the names of its options."""
    for name, child in group.commands.items():
        if hasattr(child, "commands"):
            yield from commands(child, (*path, name))
        else:
            yield " ".join((*path, name)), {option for one in child.params for option in one.opts}


def test_every_command_that_answers_can_answer_in_json() -> None:
    found = dict(commands(typer.main.get_command(app), ("shoal",)))
    silent = [name for name, options in found.items() if "--json" not in options]
    assert [name for name in silent if not name.startswith(RUN_UNTIL_STOPPED)] == []
    assert len(found) > 25


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with completion installed from bash, as a user does it."""
    folder = tmp_path_factory.mktemp("home")
    done = bash(folder, "shoal --install-completion\nexit $?\n")
    assert "bash completion installed" in done
    assert ".bash_completions/shoal.sh" in (folder / ".bashrc").read_text()
    return folder


def bash(home: Path, script: str) -> str:
    root = Path(__file__).parents[3]
    environment = os.environ | {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(root / "core"), str(root / "service")]),
    }
    command = ["bash", "--norc", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bash_completes_commands_options_and_choices(home: Path) -> None:
    """By what the installed file tells bash to call."""
    asked = {
        "shoal wat": {"watch"},
        "shoal streams ": {"list", "show", "create", "set", "delete"},
        "shoal report --out": {"--output"},
        "shoal fit --method g": {"gibbs"},
    }
    script = ["source ~/.bashrc"]
    for line in asked:
        words = line.split(" ")
        script.append(f"COMP_WORDS=({' '.join(word or chr(39) * 2 for word in words)}); COMP_CWORD={len(words) - 1}")
        script.append('_shoal_completion shoal; echo "${COMPREPLY[@]}"')
    answers = bash(home, "\n".join(script)).splitlines()
    assert [set(answer.split()) for answer in answers] == list(asked.values())


def test_fish_gets_one_choice_a_line(tmp_path: Path) -> None:
    """The help of `--on-bad` is longer than a line of a terminal."""
    asked = {"_SHOAL_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    asked |= {"_TYPER_COMPLETE_ARGS": "shoal ingest points.csv --on", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "--on"}
    (line,) = bash(
        tmp_path, "".join(f"export {name}='{value}'\n" for name, value in asked.items()) + "shoal"
    ).splitlines()
    assert line.startswith("--on-bad\tA row that cannot be used")
    assert line.endswith("bad.ndjson")
