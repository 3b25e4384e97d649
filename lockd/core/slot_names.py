"""What the slots of a resource are called: each is a lock of its own, under a name that everybody can make.

The name has no n in it: who asks for one of 3 and who asks for one of 5 at the same time share the first
three.
"""

_MARK = b":slot:"


def slot_name(resource: bytes, number: int) -> bytes:
    """Of one of its slots, from 0 on."""
    return b"%b%b%d" % (resource, _MARK, number)


def slot_number(name: bytes) -> int:
    """Which of its resource's slots that is."""
    return int(name.rpartition(_MARK)[2])


def resource_of(name: bytes) -> bytes:
    """Whose slot that is; the name itself where it is none's."""
    while True:
        resource, mark, number = name.rpartition(_MARK)
        if not (mark and resource and number.isdigit()):
            return name
        name = resource
