"""Write the bill of materials of this environment as CycloneDX JSON: python docker/bill_of_materials.py > FILE

It lists every installed distribution with its version, licence and package URL, and what each of them needs. It uses
only the standard library, and gives the same bytes for the same environment.
"""

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from typing import Any


def main() -> None:
    """Print the bill of materials."""
    found = {_name(one.metadata["Name"]): one for one in distributions()}
    components = [_component(name, found[name]) for name in sorted(found)]
    dependencies = [
        {"ref": _purl(name, found[name]), "dependsOn": [_purl(other, found[other]) for other in _needs(name, found)]}
        for name in sorted(found)
    ]
    python = sys.version.split()[0]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "shoal", "version": found["shoal"].version}},
        "components": [{"type": "platform", "name": "python", "version": python}, *components],
        "dependencies": dependencies,
    }
    json.dump(bill, sys.stdout, indent=1)
    sys.stdout.write("\n")


def _component(name: str, one: Distribution) -> dict[str, Any]:
    component = {"type": "library", "name": name, "version": one.version, "purl": _purl(name, one)}
    component["bom-ref"] = component["purl"]
    expression, licence = one.metadata.get("License-Expression"), one.metadata.get("License")
    if expression:
        return {**component, "licenses": [{"expression": expression}]}
    if licence and len(licence) < 100:  # some packages put the whole text here
        return {**component, "licenses": [{"license": {"name": licence}}]}
    return component


def _needs(name: str, found: dict[str, Distribution]) -> list[str]:
    """Installed distributions that one needs, those of its extras included."""
    texts = found[name].requires or []
    named = {_name(match[0]) for text in texts if (match := re.match(r"[A-Za-z0-9._-]+", text))}
    return sorted(named & found.keys() - {name})


def _name(name: str) -> str:
    """Name in the normal form of package indexes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _purl(name: str, one: Distribution) -> str:
    return f"pkg:pypi/{name}@{one.version}"


if __name__ == "__main__":
    main()
