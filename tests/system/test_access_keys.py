"""Keys in several processes over one Redis: what one of them changes, the others soon obey."""

from pathlib import Path

import pytest

from harness.fleet import Fleet
from harness.redis_server import running_redis
from harness.waiting import eventually
from harness.web import WEB

pytestmark = [pytest.mark.system, pytest.mark.redis]

ADMIN_KEY = "an-admin-key-of-the-fleet"


def test_a_change_of_keys_is_obeyed_by_every_process(redis_binary: str, tmp_path: Path) -> None:
    with running_redis(redis_binary, tmp_path) as server:
        fleet = Fleet(tmp_path, server, apis=2, learners=1)
        fleet.apis[0].environment["SHOAL_ADMIN_KEY"] = ADMIN_KEY  # the others learn of keys from the store alone
        here, there, learner = (service.url for service in fleet.services)

        def status(url: str, key: str | None) -> int:
            return WEB.get(url, headers={} if key is None else {"Authorization": f"Bearer {key}"}).status_code

        try:
            fleet.start()
            assert [status(f"{url}/metrics", None) for url in (here, there, learner)] == [401, 200, 200]
            for _ in range(3):
                made = WEB.post(f"{here}/keys", json={"name": "k", "scope": "read"}, headers={"api-key": ADMIN_KEY})
                assert made.status_code == 201, made.text
                key, path = made.json()["key"], made.headers["location"]
                assert status(f"{here}/metrics", key) == 200
                known = [
                    lambda url=url, key=key: (
                        (status(f"{url}/metrics", None), status(f"{url}/metrics", key)) == (401, 200)
                    )
                    for url in (there, learner)
                ]
                for one in known:
                    eventually(one)
                assert WEB.delete(here + path, headers={"api-key": ADMIN_KEY}).status_code == 204
                assert status(f"{here}/metrics", key) == 401
                gone = [lambda url=url, key=key: status(f"{url}/metrics", key) == 401 for url in (there, learner)]
                for one in gone:
                    eventually(one)
            assert [status(f"{url}/healthz", None) for url in (here, there, learner)] == [200] * 3
            assert [status(f"{url}/readyz", None) for url in (here, there, learner)] == [200] * 3
        finally:
            fleet.close()
        for service in fleet.services:
            text = service.log.read_text()
            assert ADMIN_KEY not in text
            assert key not in text
