"""Addresses that the service may connect to, and how the messages of webhooks are signed."""

import base64

import anyio
import pytest

from shoal_service import addresses
from shoal_service.errors import ParameterError
from shoal_service.streams.webhooks import attempt, check_url, key_of_secret, signature_of
from shoal_service.streams.webhooks.definition import Webhook

PRIVATE = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "224.0.0.1", "255.255.255.255", "240.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1",
    "fec0::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:0001::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "::127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b:1::7f00:1", "5f00::1",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_not_public(address: str) -> None:
    assert not addresses.is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are(address: str) -> None:
    assert addresses.is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "https://[::1]:8000/x",
        "http://localhost/",
        "http://a.localhost./",
        "http://169.254.169.254/",
    ],
)
def test_a_url_to_a_private_address_needs_the_setting(url: str) -> None:
    with pytest.raises(ParameterError, match="--webhook-allow-private"):
        check_url(url, allow_private=False)
    check_url(url, allow_private=True)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "example.org",
        "http://",
        "http://[::1",
        "http://a:99999/",
        "http://a b/",
        "http://u:p@a.org/",
        "http://a..org/",
        f"http://{'a' * 64}.org/",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ParameterError, match="url"):
        check_url(url, allow_private=True)


def test_a_name_is_checked_when_it_is_looked_up_and_the_checked_address_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that leads to a public address first, and to a private one later, leads nowhere."""
    answers = [["93.184.216.34"], ["127.0.0.1"], ["93.184.216.34", "10.0.0.1"]]

    async def look() -> list[str]:
        import asyncio

        loop = asyncio.get_running_loop()

        async def getaddrinfo(host: str, port: int, **options: object) -> list[tuple]:
            return [(2, 1, 6, "", (address, port)) for address in answers.pop(0)]

        monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
        found = [await addresses.address_of("rebinding.example", 80, allow_private=False)]
        for _ in range(2):
            with pytest.raises(addresses.RefusedAddressError, match="leads to"):
                await addresses.address_of("rebinding.example", 80, allow_private=False)
        return found

    assert anyio.run(look) == ["93.184.216.34"]


def test_an_attempt_at_a_private_address_says_why_it_was_not_made() -> None:
    webhook = Webhook("id", "w", "http://localhost:1/", ("born",), "secret", 0.0, (1, 0))

    async def tried() -> attempt.Failure | None:
        async with attempt.new_client() as client:
            return await attempt.send(client, webhook, attempt.Message("m", b"{}"), attempt.Limits(5.0, False))

    failure = anyio.run(tried)
    assert failure is not None
    assert "the server sends to public addresses only" in failure.reason


@pytest.mark.parametrize("allow_private", [True, False])
def test_an_attempt_at_a_name_that_no_look_up_accepts_fails_with_a_reason(allow_private: bool) -> None:
    """One that an earlier version let in: its sender ended, and began again each second, for ever."""
    host = f"{'a' * 64}.example"
    webhook = Webhook("id", "w", f"http://{host}/", ("born",), "secret", 0.0, (1, 0))

    async def tried() -> attempt.Failure | None:
        async with attempt.new_client() as client:
            return await attempt.send(client, webhook, attempt.Message("m", b"{}"), attempt.Limits(5.0, allow_private))

    failure = anyio.run(tried)
    assert failure is not None
    assert "is no name of a host" in failure.reason
    with pytest.raises(OSError, match="is no name of a host"):
        addresses.public_addresses(host, 80)


def test_the_signature_is_that_of_the_standard() -> None:
    """The example of the specification of Standard Webhooks."""
    key = key_of_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert key == base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signature = signature_of(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert key_of_secret("plain text") == b"plain text"
    with pytest.raises(ParameterError, match="base64"):
        key_of_secret("whsec_***")
