"""The names of a resource's slots. Each slot is a lock, with a name that every agent can compute.

The name does not contain n: a request for one of 3 and a request for one of 5 share the first three slots.
"""

_MARK = b":slot:"


def slot_name(resource: bytes, number: int) -> bytes:
    """The name of one of its slots, from 0 on."""
    return b"%b%b%d" % (resource, _MARK, number)


def slot_number(name: bytes) -> int:
    """The number of the slot with this name."""
    return int(name.rpartition(_MARK)[2])


def whole_of(name: bytes) -> bytes:
    """The resource that has this slot; b"" if the name is not a slot's."""
    resource, mark, number = name.rpartition(_MARK)
    return resource if mark and number.isdigit() else b""


def resource_of(name: bytes) -> bytes:
    """The resource of the slot with this name; the name itself if it is not a slot's."""
    while whole := whole_of(name):
        name = whole
    return name
