/* For what is preloaded into processes: numbers that a test changes while they run (Preloaded of clock_shim.py). */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The file that the variable names, mapped: what is written into it counts from the next look on. NULL without one. */
static inline void *mapped_setting(const char *variable, size_t bytes)
{
    const char *path = getenv(variable);
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return NULL;
    void *page = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return page == MAP_FAILED ? NULL : page;
}
