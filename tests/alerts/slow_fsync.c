/* A disk that is slow to confirm, for the process that this is preloaded into: each fsync and fdatasync first sleeps
 * for as many microseconds as stand in the file $SLOW_FSYNC (one int64, mapped, so that it can be changed any time). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int64_t *delay_us;

__attribute__((constructor)) static void map_setting(void) {
    const char *path = getenv("SLOW_FSYNC");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) delay_us = mapped;
    close(fd);
}

static void wait_for_the_disk(void) {
    if (delay_us && *delay_us) usleep(*delay_us);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    wait_for_the_disk();
    return real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    wait_for_the_disk();
    return real(fd);
}
