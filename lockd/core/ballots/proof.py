"""What is left of a ballot that proved a tenure."""


class Proof:
    """The masters that confirmed a tenure when it was last proven, as bits. It includes those that did so
    late, for as long as answers come. The ballot itself is ten times as large, and is dropped once they have
    come."""

    __slots__ = ("masters",)

    def __init__(self, masters: int = 0) -> None:
        self.masters = masters
