"""Student t components with unknown mean and scale matrix."""

from shoal.families.student.prior import MultivariateStudent
from shoal.families.student.types import StudentCache, StudentConstants, StudentDraw, StudentStats

__all__ = [
    "MultivariateStudent",
    "StudentCache",
    "StudentConstants",
    "StudentDraw",
    "StudentStats",
]
