"""The families that the service and the command line name are those that the library has."""

from typing import get_args

from shoal.families import FAMILIES
from shoal_service.cli.fit import Family
from shoal_service.wire.models import StreamIn


def test_the_wire_and_the_command_line_know_every_family() -> None:
    (words, _) = get_args(StreamIn.model_fields["family"].annotation)
    assert set(get_args(words)) == {family.value for family in Family} == set(FAMILIES)
