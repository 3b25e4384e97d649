"""The rules of lockd, without sockets, clocks or random numbers.

Time comes in as an argument (`now_ns`, CLOCK_BOOTTIME nanoseconds), randomness as a function passed at the
start, messages as method calls. What core wants done goes out through the protocols in `interfaces.py`. So
the same code runs behind real sockets and in a simulator.

The algorithm is Redlock (Redis documentation, "Distributed Locks with Redis"), with these rules. The code
names a rule where it serves it:

 1  Redlock, whole: a quorum, within a validity counted from before the first byte, checked when answering.
 2  Answer at quorum, keep going to N. After a fresh proof, a lease is put on masters that never had it.
 3  Give back at once what a failed try left, also where no answer came; never overtake one's own acquire.
 4  Acquire is 'free or mine', by the try's own nonce: 128 bits from the operating system, never used twice.
    A request that its app has named is granted once, and only to that app's process (names.py).
 5  Own deadlines: a slow or dead master costs no request anything.
 6  Fences are unique and ordered, even if mutual exclusion fails. A tenure's next block comes from masters
    that show the tenure, and ends with it.
 7  The number of renewals is bounded by max_hold. A tenure older than that is not handed on. A tenure without
    a lease may be kept for a while, and is never renewed (tenures/keeping.py).
 8  A blank master has no vote, nor does one with another identity or other members, nor a copy of a master.
    An admitted master gets a new number, which the others know first (identities.py, admission.py, changes).
    An id that two masters share is written only after the votes of all of them were taken (changes).
 9  The ceiling of the TTL lives on the masters.
10  Restarts are dirty unless proven clean (the guard on the masters' hosts).
11  A master whose clock jumped forward has no vote for a max TTL. If all clocks jumped, this host stood
    still, and the jump is taken off its leases.
12  A holder learns of a loss before it is one.
13  A dead app frees its locks (owners.py). What living apps hold, the next agent on the host takes over
    (journal.py, takeover.py).
14  A master with settings that break a promise has no vote.

What the masters see of a host is its tenure of a resource. The host's apps get leases under that tenure, one
after the other (tenures). It is handed on without asking only while its last proof stands. While other hosts
wait, hosts take turns (tenures/places.py, notices.py): no safety rests on that.
"""
