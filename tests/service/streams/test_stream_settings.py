"""Settings of a stream that the library knows and the service does not offer."""

import pytest

from shoal.errors import SettingError
from shoal.mixture import StreamSettings
from shoal_service.settings import Settings
from shoal_service.streams.stream_settings import within_limits


def test_a_half_life_in_time_is_refused_as_the_log_has_no_times() -> None:
    """A snapshot of the library may bring one; a stream would then never forget."""
    points = StreamSettings(n_features=1, half_life=50.0)
    assert within_limits(points, Settings()) is points
    with pytest.raises(SettingError, match="half_life is '1h'; the service forgets by points"):
        within_limits(StreamSettings(n_features=1, half_life="1h"), Settings())
