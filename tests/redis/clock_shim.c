/* A wall clock that a test can step, for one process at a time: preloaded, it adds an offset to CLOCK_REALTIME
 * and leaves every other clock alone. A container's own clock can't be set, and must not be.
 *
 * WALL_CLOCK_OFFSET names a file of eight bytes, a signed number of nanoseconds in the machine's byte order. It is mapped,
 * so that whatever the test writes into it counts from the next look at the clock on.
 *
 * Built by the tests: gcc -shared -fPIC -O2 -o clock_shim.so clock_shim.c
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000LL

static const volatile int64_t *offset_ns;

__attribute__((constructor)) static void map_the_offset(void)
{
    const char *path = getenv("WALL_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        offset_ns = page;
    close(file);
}

/* The kernel itself is asked: libc's own functions are the ones replaced here. */
static int read_clock(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)now->tv_sec * NS_PER_S + now->tv_nsec + *offset_ns;
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
