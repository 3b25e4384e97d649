"""What can go wrong with a master."""

from lockd.core.membership import State


class MasterError(Exception):
    """A master answered with an error, or can't be asked."""


def is_of_another_type(error: MasterError) -> bool:
    """A key of that name is there, and is not of the type that lockd writes."""
    return str(error).startswith("WRONGTYPE")


class Unfit(MasterError):
    """It answers, and can't be used as it is. `state` says what it is until that is fixed."""

    def __init__(self, state: State, why: str) -> None:
        super().__init__(why)
        self.state = state
