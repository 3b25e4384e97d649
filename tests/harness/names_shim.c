/* Names whose lookup a test can hold up, for one process at a time: preloaded, it has hosts, users and groups whose names
 * end in -held wait for their answer as long as the test says so. Then such a host is 127.0.0.1, and such a user or
 * group is nobody. All other names are looked up as ever.
 *
 * NAMES_SHIM names a file of a signed 64-bit number in the machine's byte order: not 0 while they wait. It is mapped, so
 * that whatever the test writes into it counts at once.
 *
 * names_shim.py builds it (gcc -shared -fPIC -O2 -o names_shim.so names_shim.c).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <grp.h>
#include <netdb.h>
#include <pwd.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "preloaded.h"

static const volatile int64_t *held;

__attribute__((constructor)) static void map_the_setting(void)
{
    held = mapped_setting("NAMES_SHIM", sizeof *held);
}

static int is_ours(const char *name)
{
    const char *end = name ? strrchr(name, '-') : NULL;
    return held && end && !strcmp(end, "-held");
}

static void wait_while_held(void)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    while (*held)
        nanosleep(&moment, NULL);
}

int getaddrinfo(const char *restrict name, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!is_ours(name))
        return real(name, service, hints, found);
    wait_while_held();
    return real("127.0.0.1", service, hints, found);
}

int getpwnam_r(const char *name, struct passwd *user, char *text, size_t size, struct passwd **found)
{
    int (*real)(const char *, struct passwd *, char *, size_t, struct passwd **) = dlsym(RTLD_NEXT, "getpwnam_r");
    if (is_ours(name))
        wait_while_held();
    return real(name, user, text, size, found);
}

int getgrnam_r(const char *name, struct group *group, char *text, size_t size, struct group **found)
{
    int (*real)(const char *, struct group *, char *, size_t, struct group **) = dlsym(RTLD_NEXT, "getgrnam_r");
    if (is_ours(name))
        wait_while_held();
    return real(name, group, text, size, found);
}
