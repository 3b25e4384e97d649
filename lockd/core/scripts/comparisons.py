"""Which values are true, equal and less, as far as that is known. The rest depends on what comes with the
script, and becomes a condition."""

from __future__ import annotations

from lockd.core.scripts.errors import NotRecognisedError
from lockd.core.scripts.keyspace import Keyspace
from lockd.core.scripts.operations import Condition, Left, Place, Question, Status
from lockd.core.scripts.values import Counted, Number, Value, Whose, is_whole

Asked = tuple[Place, Question, bytes | int]
Assumed = dict[Asked, bool]


class UndecidedError(Exception):
    """It depends on a condition about which nothing is assumed yet."""

    def __init__(self, place: Place, question: Question, operand: bytes | int) -> None:
        super().__init__(str(Condition(place, question, operand)))
        self.asked: Asked = (place, question, operand)


class Comparisons:
    """The comparisons of one reading. used: the assumptions that it has asked for."""

    def __init__(self, keyspace: Keyspace, assumed: Assumed) -> None:
        self._keyspace = keyspace
        self._assumed = assumed
        self.used: Assumed = {}

    def is_true(self, value: Value) -> bool:
        """Only nil and false are not true."""
        if isinstance(value, Place):
            return self.holds(value, Question.GIVEN)
        if isinstance(value, Number):
            raise NotRecognisedError(f"it asks whether {value.place} is a number")
        return value is not None and value is not False

    def holds(self, place: Place, test: Question, operand: bytes | int = b"") -> bool:
        asked = (place, test, operand)
        if asked not in self._assumed:
            raise UndecidedError(*asked)
        holds = self.used[asked] = self._assumed[asked]
        return holds

    def are_equal(self, left: Value, right: Value) -> bool:
        if isinstance(left, Whose):
            left, right = right, left
        if isinstance(right, Whose):
            return self._is_stored(left, right)
        if isinstance(right, Place | Number | Left | Counted):
            left, right = right, left
        if isinstance(left, Place):
            return self._is_place(left, right)
        if isinstance(left, Number) and is_whole(right) and left.factor == 1:
            return self.holds(left.place, Question.IS_NUMBER, right)
        if isinstance(left, Left) and is_whole(right) and right < 0:
            return False
        if isinstance(left, Counted) and is_whole(right) and right == 0:
            return left.count == 0
        if isinstance(left, Status) or isinstance(right, Status):
            return self._is_status(left, right)
        if _is_plain(left) and _is_plain(right):
            return type(left) is type(right) and left == right
        raise NotRecognisedError("it compares values that can't be compared here")

    def _is_stored(self, other: Value, whose: Whose) -> bool:
        """A string is never equal to anything but a string."""
        if isinstance(other, bytes | Place):
            return self._keyspace.is_own(whose, other)
        if other is None or isinstance(other, bool | int):
            return False
        raise NotRecognisedError("it compares the stored value with an unknown value")

    def _is_place(self, place: Place, other: Value) -> bool:
        if isinstance(other, bytes):
            return self.holds(place, Question.IS, other)
        if other is None:
            return not self.holds(place, Question.GIVEN)
        if isinstance(other, bool | int):
            return False
        raise NotRecognisedError(f"it compares {place} with an unknown value")

    def _is_status(self, left: Value, right: Value) -> bool:
        """A status is a table in Lua, and no string equals a table."""
        if _is_plain(left) or _is_plain(right):
            return False
        raise NotRecognisedError("it compares a status with an unknown value")

    def is_less(self, operator: bytes, left: Value, right: Value) -> bool:
        """All four comparisons, as `<` or as not `>`."""
        if operator in (b">", b">="):
            return self.is_less({b">": b"<", b">=": b"<="}[operator], right, left)
        if operator == b"<=":
            return not self._is_smaller(right, left)
        return self._is_smaller(left, right)

    def _is_smaller(self, left: Value, right: Value) -> bool:
        if isinstance(left, int) and isinstance(right, int) and is_whole(left) and is_whole(right):
            return left < right
        if isinstance(left, Number) and is_whole(right) and left.factor == 1:
            return self.holds(left.place, Question.BELOW, right)
        if isinstance(right, Number) and is_whole(left) and right.factor == 1:
            return self.holds(right.place, Question.ABOVE, left)
        if is_whole(left) and left == 0 and isinstance(right, Counted):
            return right.count > 0
        if isinstance(left, Left) and is_whole(right):
            return not self._is_left_at_least(left, right)
        if isinstance(right, Left) and is_whole(left):
            return self._is_left_at_least(right, left + 1)
        raise NotRecognisedError("it compares sizes that are not known")

    def _is_left_at_least(self, left: Left, number: int) -> bool:
        """It is never below 0."""
        if number > 1:
            raise NotRecognisedError("it compares what is left with something other than 0")
        return number < 1 or self._keyspace.is_above_zero(left)


def _is_plain(value: Value) -> bool:
    """Whether the value is known completely."""
    return value is None or isinstance(value, bool | int | bytes)
