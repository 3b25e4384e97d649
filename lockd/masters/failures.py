"""What can go wrong with a master."""

from lockd.core.membership import State


class MasterError(Exception):
    """A master answered with an error, or can't be asked."""


class Unfit(MasterError):
    """It answers, and can't be used as it is. `state` says what it is until that is fixed."""

    def __init__(self, state: State, why: str) -> None:
        super().__init__(why)
        self.state = state
