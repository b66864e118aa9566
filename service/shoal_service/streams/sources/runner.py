"""Runner of sources: supervises the connector of each enabled source of the streams that are learnt here."""

from collections.abc import Callable, Mapping
from typing import Any

from shoal_service.settings import Settings
from shoal_service.store import Store
from shoal_service.streams.sources.definition import SourceDefinition, SourceRules
from shoal_service.streams.sources.documents import SourceDocuments
from shoal_service.streams.sources.state import RunningSource
from shoal_service.streams.sources.supervisor import ChildOptions, Slots, SupervisedSource
from shoal_service.streams.stream_tasks import LearntStream, StreamTasks


class SourceRunner(StreamTasks[SupervisedSource]):
    """Runs sources between `start` and `close`."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        log: Any,
        streams: Callable[[], Mapping[str, LearntStream]],
        socket: Callable[[], str],
    ) -> None:
        """`streams` gives those that this process learns now, by name; `socket` as in `ChildOptions`."""
        super().__init__("sources", log, streams)
        self._store = store
        self._options = ChildOptions(SourceRules.of(settings), socket, settings.log_level, settings.log_format)
        self._slots = Slots(settings.source_processes)

    @property
    def running(self) -> list[RunningSource]:
        """The sources that this process runs now. Any thread may ask."""
        return [
            RunningSource(stream, work.definition.name, work.state, work.begun, work.restarts)
            for stream, work in self.work
            if work.state is not None and work.begun is not None
        ]

    def definitions(self, stream: LearntStream) -> Mapping[str, SourceDefinition]:
        """As `StreamTasks.definitions`: those that are enabled."""
        found = SourceDocuments(self._store, stream.name, stream.incarnation).all()
        return {one.name: one for one in found if one.enabled}

    def begin(self, definition: SourceDefinition, stream: LearntStream) -> SupervisedSource:
        """As `StreamTasks.begin`."""
        documents = SourceDocuments(self._store, stream.name, stream.incarnation)
        return SupervisedSource(definition, stream, documents, self._options, self._slots, self._log)
