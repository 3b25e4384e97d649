/* A wall clock that a test can set, for one process at a time: preloaded, it adds an offset to CLOCK_REALTIME, or
 * stops it at one instant, and leaves every other clock alone. A container's own clock can't be set, and must not be.
 *
 * CLOCK_SHIM names a file of two signed 64-bit numbers in the machine's byte order, both of nanoseconds: how far the clock
 * is ahead, and where it stands still (0: it runs). It is mapped, so that whatever the test writes into it counts from the
 * next look at the clock on.
 *
 * clock_shim.py builds it (gcc -shared -fPIC -O2 -o clock_shim.so clock_shim.c) and sets the clocks.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "preloaded.h"

#define NS_PER_S 1000000000LL

struct setting {
    int64_t ahead_ns;
    int64_t stopped_at_ns;
};

static const volatile struct setting *setting;

__attribute__((constructor)) static void map_the_setting(void)
{
    setting = mapped_setting("CLOCK_SHIM", sizeof *setting);
}

/* The kernel itself is asked: libc's own functions are the ones replaced here. */
static int read_clock(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && setting && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t stopped_at_ns = setting->stopped_at_ns;
        int64_t ns = stopped_at_ns ? stopped_at_ns
                                   : (int64_t)now->tv_sec * NS_PER_S + now->tv_nsec + setting->ahead_ns;
        now->tv_sec = ns / NS_PER_S;
        now->tv_nsec = ns % NS_PER_S;
    }
    return failed;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    return read_clock(clock, now);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec wall;
    (void)zone;
    if (read_clock(CLOCK_REALTIME, &wall))
        return -1;
    now->tv_sec = wall.tv_sec;
    now->tv_usec = wall.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec wall;
    if (read_clock(CLOCK_REALTIME, &wall))
        return (time_t)-1;
    if (seconds)
        *seconds = wall.tv_sec;
    return wall.tv_sec;
}
