"""Every error has its problem, and every problem the form that RFC 9457 gives it."""

import json

import pytest

from shoal import errors as library
from shoal_service import errors as service
from shoal_service.problems import KINDS, MEDIA_TYPE, openapi_responses, problem_for, problem_for_status
from shoal_service.wire.models import ProblemOut


def leaves(root: type[library.ShoalError]) -> set[type[library.ShoalError]]:
    """The classes of the two trees that have none below them (a test's own subclasses do not count)."""
    below = [c for c in root.__subclasses__() if c.__module__ in (library.__name__, service.__name__)]
    return set().union(*map(leaves, below)) if below else {root}


LEAVES = sorted(leaves(library.ShoalError), key=lambda error: error.__name__)


def test_every_leaf_of_both_trees_has_a_problem_of_its_own() -> None:
    assert set(LEAVES) <= set(KINDS)
    assert len(LEAVES) > 25


def test_types_are_slugs_and_only_two_errors_share_one() -> None:
    slugs = [kind.slug for kind in KINDS.values()]
    assert all(slug.replace("-", "").isalpha() and slug.islower() for slug in slugs)
    assert sorted({slug for slug in slugs if slugs.count(slug) > 1}) == ["no-points"]
    assert KINDS[library.NoPointsError] == KINDS[service.NoPointsYetError]


@pytest.mark.parametrize("error", LEAVES)
def test_bodies_are_as_documented(error: type[library.ShoalError]) -> None:
    raised = error("what was wrong, what to do")
    problem = problem_for(raised)
    body = json.loads(problem.body())
    ProblemOut.model_validate(body, strict=True)
    assert body["status"] == problem.status
    assert 400 <= problem.status < 600
    assert body["type"].startswith("/problems/")
    assert body["retryable"] is error.retryable
    assert (
        ("retry_after" in body)
        == ("Retry-After" in problem.headers())
        == (getattr(error, "retry_after_s", None) is not None)
    )
    assert (body["detail"] == str(raised)) == (problem.status != 500 or error is service.LearnerStoppedError)
    assert problem.headers()["Content-Type"] == MEDIA_TYPE


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (service.NoPointsYetError, 409, "no-points"),
        (service.OffsetNotAppliedError, 504, "offset-not-applied"),
        (service.BodyTooLargeError, 413, "body-too-large"),
        (service.UnsupportedMediaTypeError, 415, "unsupported-media-type"),
        (service.IdempotencyMismatchError, 422, "idempotency-mismatch"),
        (service.DeadLetteredError, 422, "dead-lettered"),
        (service.UnknownStreamError, 404, "unknown-stream"),
        (library.UnknownComponentError, 404, "unknown-component"),
        (service.StreamConflictError, 409, "stream-conflict"),
        (service.PreconditionFailedError, 412, "precondition-failed"),
        (service.OverloadedError, 503, "overloaded"),
        (service.StoreUnavailableError, 503, "store-unavailable"),
        (service.NotReadyError, 503, "not-ready"),
        (service.LearnerStoppedError, 500, "learner-stopped"),
        (service.OffsetBeyondLogError, 400, "offset-beyond-log"),
        (service.HostNotAllowedError, 421, "host-not-allowed"),
        (service.UnauthenticatedError, 401, "unauthenticated"),
        (service.ForbiddenError, 403, "forbidden"),
        (service.RateLimitedError, 429, "rate-limited"),
        (service.UnknownKeyError, 404, "unknown-key"),
        (library.ShapeError, 400, "shape"),
        (library.NotFiniteError, 400, "not-finite"),
        (library.NotNumericError, 400, "not-numeric"),
        (library.OutsideDomainError, 400, "outside-domain"),
    ],
)
def test_the_types_that_programs_rely_on(error: type[library.ShoalError], status: int, slug: str) -> None:
    problem = problem_for(error("x"))
    assert (problem.status, problem.type) == (status, f"/problems/{slug}")


def test_only_server_faults_and_waits_are_retryable_or_the_other_way_round() -> None:
    for error in LEAVES:
        assert error.retryable == (KINDS[error].status in (408, 429, 503, 504)), error


def test_a_refused_caller_learns_how_to_come_in_and_what_the_key_lacks() -> None:
    assert problem_for(service.UnauthenticatedError("x")).headers()["WWW-Authenticate"] == 'Bearer realm="shoal"'
    lacking = problem_for(service.ForbiddenError("x", scope="write"))
    assert "WWW-Authenticate" not in lacking.headers()
    assert json.loads(lacking.body())["scope"] == "write"
    ProblemOut.model_validate_json(lacking.body(), strict=True)


def test_a_row_is_named_also_when_it_is_the_first() -> None:
    assert json.loads(problem_for(library.NotFiniteError("x", row=0)).body())["row"] == 0
    assert "row" not in json.loads(problem_for(library.NotFiniteError("x")).body())


def test_retry_after_is_in_whole_seconds_rounded_up() -> None:
    error = service.OverloadedError("x")
    error.retry_after_s = 0.2
    problem = problem_for(error)
    assert problem.headers()["Retry-After"] == "1"
    assert json.loads(problem.body())["retry_after"] == 0.2
    assert problem._replace(retry_after_s=2.1).headers()["Retry-After"] == "3"


@pytest.mark.parametrize(
    "error",
    [RuntimeError("secret at 0x7f"), KeyError("secret"), service.StoreError("secret"), library.ShoalError("secret")],
)
def test_what_nobody_foresaw_says_nothing_of_its_insides(error: Exception) -> None:
    problem = problem_for(error)
    assert (problem.status, problem.type, problem.retryable) == (500, "/problems/internal", False)
    assert b"secret" not in problem.body()


def test_details_are_one_line_of_bounded_length() -> None:
    detail = problem_for(library.ShapeError("a\n\tb" + "c" * 5000)).detail
    assert detail.startswith("a b")
    assert len(detail) == 1000


def test_subclasses_take_the_problem_of_their_nearest_ancestor() -> None:
    class Narrower(service.OverloadedError):
        pass

    assert problem_for(Narrower("x")).type == "/problems/overloaded"


def test_statuses_without_an_error_of_ours() -> None:
    problem = problem_for_status(405, "POST is not taken here")
    assert (problem.type, problem.title, problem.detail) == (
        "about:blank",
        "Method Not Allowed",
        "POST is not taken here",
    )
    assert problem_for_status(404).detail == "Not Found"


def test_openapi_groups_errors_by_status() -> None:
    responses = openapi_responses(library.ShapeError, library.NotFiniteError, service.OverloadedError)
    assert set(responses) == {400, 503}
    examples = responses[400]["content"][MEDIA_TYPE]["examples"]
    assert set(examples) == {"shape", "not-finite"}
    ProblemOut.model_validate(examples["shape"]["value"])
