"""Settings of a stream as they come in."""

import json
from dataclasses import fields

import pytest
from wire_bodies import JSON, LIMITS, MSGPACK, zipped

from shoal.errors import SettingError, ShoalError
from shoal.mixture import StreamSettings
from shoal_service.errors import BodyTooLargeError, MalformedBodyError, UnsupportedMediaTypeError
from shoal_service.wire.models import StreamIn, decode_stream_settings


def test_only_what_was_given_comes_out() -> None:
    given = {"family": "diagonal", "n_features": 3, "half_life": None, "prior": {"mean": [0, 1], "scale": [[1.0]]}}
    assert decode_stream_settings(json.dumps(given).encode(), JSON, LIMITS) == given
    assert decode_stream_settings(zipped(b"{}"), JSON, LIMITS, content_encoding="gzip") == {}


@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        (b"", MalformedBodyError, "empty"),
        (b"{", MalformedBodyError, "JSON"),
        (b"[]", MalformedBodyError, "object"),
        (b'{"famly": "gaussian"}', SettingError, "'famly'"),
        (b'{"family": 1}', SettingError, "family is '1'"),
        (b'{"n_features": true}', SettingError, "n_features"),
        (b'{"n_features": "3"}', SettingError, "n_features"),
        (b'{"n_features": 2.5}', SettingError, "n_features"),
        (b'{"concentration": NaN}', SettingError, "concentration"),
        (b'{"concentration": false}', SettingError, "concentration"),
        (b'{"prior": "none"}', SettingError, "prior"),
        (b'{"prior": {"mean": "0"}}', SettingError, "prior"),
        (b'{"a": "' + b"a" * 10**6 + b'"}', BodyTooLargeError, "larger|limit"),
    ],
)
def test_bad_settings(body: bytes, error: type[ShoalError], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        decode_stream_settings(body, JSON, LIMITS)
    assert type(caught.value) is error
    assert len(str(caught.value)) < 600


def test_the_settings_on_the_wire_are_those_of_the_library() -> None:
    assert set(StreamIn.model_fields) == {field.name for field in fields(StreamSettings)}
    assert all(field.description for field in StreamIn.model_fields.values())


def test_settings_are_json() -> None:
    with pytest.raises(UnsupportedMediaTypeError):
        decode_stream_settings(b"\x80", MSGPACK, LIMITS)
