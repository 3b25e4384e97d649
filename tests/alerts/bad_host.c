/* A host in trouble, for the process that this is preloaded into. $BAD_HOST names a file of two signed 64-bit numbers,
 * mapped, so that they can be changed any time: for how many microseconds each fsync and fdatasync first sleeps, and
 * whether (not 0) no new connection leaves the host. It can still be connected to. */
#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../harness/preloaded.h"

static const volatile struct setting {
    int64_t fsync_us;
    int64_t cut_off;
} *setting;

__attribute__((constructor)) static void map_the_setting(void)
{
    setting = mapped_setting("BAD_HOST", sizeof *setting);
}

/* The kernel itself is asked: libc's own functions are the ones replaced here. */
static int slowly(long call, int file)
{
    if (setting && setting->fsync_us)
        usleep(setting->fsync_us);
    return (int)syscall(call, file);
}

int fsync(int file) { return slowly(SYS_fsync, file); }

int fdatasync(int file) { return slowly(SYS_fdatasync, file); }

int connect(int file, const struct sockaddr *to, socklen_t length)
{
    if (setting && setting->cut_off && to->sa_family == AF_INET) {
        errno = ENETUNREACH;
        return -1;
    }
    return (int)syscall(SYS_connect, file, to, length);
}
