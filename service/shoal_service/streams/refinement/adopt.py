"""Adoption of a refinement: the log entry that carries its result, and the application of that entry to the state.

The effect of an adoption is a function of the log: the blob that the entry names, the entries since its base, and the
state. Every replay refuses an adoption in the same cases: a restore lies between its base and the entry; too many
points came since its base; or the library finds that it does not fit, because another refinement was adopted or the
window began empty.
"""

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from shoal_service.errors import StoreFormatError
from shoal_service.refining import MissingRowsError, last_rows
from shoal_service.store import Entry, EntryKind, Store
from shoal_service.streams.refinement.window_rows import batches_of, entries_between

if TYPE_CHECKING:
    from shoal.mixture import MixtureState
    from shoal.sequential import AssimilateInfo

MAX_SINCE_BYTES = 1 << 30
"""Largest payload of the batches since a refinement's base, which are in memory together. A larger one refuses the
refinement. It is a constant, so that every replay decides the same."""


class AdoptionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Payload of a log entry of kind `adoption`."""

    refinement: str
    """Its id."""
    verdict: Literal["adopt", "postpone"]
    """`postpone`: the result is not worth adopting, and only moves the schedule of the next refinements."""
    base_seq: int
    """The last entry that its base state had applied."""
    base_offset: int
    """Points seen by that state."""
    blob: str
    """Key of the result's bytes in the store."""
    sha256: str

    @classmethod
    def from_payload(cls, payload: bytes) -> "AdoptionEntry":
        """Inverse of `to_payload`."""
        return msgspec.json.decode(payload, type=cls)

    def to_payload(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)


class AdoptionInputs(NamedTuple):
    """Everything that is read from the store to apply an adoption."""

    entry: AdoptionEntry
    blob: bytes
    batches: list[bytes]
    """Payloads of the batches learnt since its base."""
    overtaken: str | None
    """The reason why it cannot be adopted any more, whatever it contains. None where there is none."""


class AdoptionOutcome(NamedTuple):
    """Result of the application of an adoption."""

    state: "MixtureState"
    info: "AssimilateInfo | None"
    adopted: bool
    refused: str | None
    """The reason of a refusal."""


def read_inputs(
    store: Store, name: str, incarnation: str, entry: Entry, is_dead_letter: Callable[[int], bool]
) -> AdoptionInputs:
    """Read what `entry` needs. Raises as the store does, and StoreFormatError for another blob than the entry names."""
    adoption = AdoptionEntry.from_payload(entry.payload)
    blob = store.get_blob(name, incarnation, adoption.blob)
    if hashlib.sha256(blob).hexdigest() != adoption.sha256:
        raise StoreFormatError(f"the blob of refinement {adoption.refinement} is not the one that the log names")
    batches: list[bytes] = []
    n_bytes = 0
    for since in entries_between(store, (name, incarnation), adoption.base_seq, entry.seq - 1):
        if since.kind is EntryKind.RESTORE:  # the rows since then do not follow the base state
            reason = f"a restore (entry {since.seq}) came between it and the state it is of"
            return AdoptionInputs(adoption, blob, [], reason)
        if adoption.verdict == "postpone":
            continue
        batches += batches_of([since], is_dead_letter)
        n_bytes += len(since.payload)
        if n_bytes > MAX_SINCE_BYTES:
            return AdoptionInputs(adoption, blob, [], f"over {MAX_SINCE_BYTES:,} bytes of points came since its base")
    return AdoptionInputs(adoption, blob, batches, None)


def apply_adoption_inplace(state: "MixtureState", inputs: AdoptionInputs) -> AdoptionOutcome:
    """Apply an adoption. A refusal leaves `state` unchanged; any exception may leave it half changed."""
    from shoal.errors import AdoptionError
    from shoal.refinement import adopt_inplace, check_adoptable, from_bytes, postponed

    if inputs.overtaken is not None:
        return AdoptionOutcome(state, None, False, inputs.overtaken)
    refinement = from_bytes(inputs.blob)
    n_since = state.points_seen - refinement.base_offset
    try:
        check_adoptable(state, refinement, n_since)
        if inputs.entry.verdict == "postpone":
            return AdoptionOutcome(postponed(state, refinement), None, False, None)
        adopted, info = adopt_inplace(state, refinement, last_rows(inputs.batches, n_since, state))
    except (AdoptionError, MissingRowsError) as error:
        return AdoptionOutcome(state, None, False, str(error))
    return AdoptionOutcome(adopted, info, True, None)
