"""Whether the clock of this host is in sync, whatever keeps it. Ends with 0 as soon as it is, and else with 1
after PATIENCE seconds, saying why. Read by Python on the host from the standard input; standard library only.

    clock_in_sync.py PATIENCE_S MAX_OFFSET_S

chrony knows how far off the clock is. Of any other program there is what the kernel says: it calls the clock
synchronised while something like ntpd vouches for it.
"""

import ctypes
import subprocess
import sys
import time

TIME_ERROR = 5


def main():
    patience_s, max_offset_s = sys.argv[1:]
    if chrony_answers():
        sys.exit(subprocess.call(["chronyc", "waitsync", patience_s, max_offset_s, "0", "1"]))
    if not synchronised_within(int(patience_s)):
        sys.exit("no chrony answers, and the kernel does not call the clock synchronised")


def chrony_answers():
    try:
        asked = subprocess.run(["chronyc", "tracking"], stdout=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        return False
    return asked.returncode == 0


def synchronised_within(seconds):
    until = time.monotonic() + seconds
    while not synchronised():
        if time.monotonic() >= until:
            return False
        time.sleep(1)
    return True


def synchronised():
    # struct timex, all zero (modes 0: only look), with room to spare.
    return 0 <= ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)) < TIME_ERROR


if __name__ == "__main__":
    main()
