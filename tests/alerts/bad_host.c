/* A host in trouble, for the process that this is preloaded into. $BAD_HOST names a file of two signed 64-bit numbers,
 * mapped, so that they can be changed any time: for how many microseconds each fsync and fdatasync first sleeps, and
 * whether (not 0) no new connection leaves the host. It can still be connected to. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const volatile struct setting {
    int64_t fsync_us;
    int64_t cut_off;
} *setting;

__attribute__((constructor)) static void map_the_setting(void)
{
    const char *path = getenv("BAD_HOST");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *page = mmap(NULL, sizeof *setting, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED)
        setting = page;
    close(file);
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
