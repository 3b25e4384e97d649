/* An app in C that knows nothing of lockd but its socket: it takes a lock, closes its connection, and holds the lock
 * until it is told to end; then it gives it back over another connection.
 *
 *     holder SOCKET RESOURCE TTL_MS      writes "held FENCE" when it has it, and what UNLOCK answered at its end */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* token, fence, validity_ms, deadline_ns and bound, each with its name. */
enum { LINES_OF_A_LEASE = 1 + 4 + 3 + 3 + 3 + 4 };

static void fail(const char *what)
{
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

/* Sends three words, as to any Redis, and reads the answer: of a map as many lines as that has, of all else one. */
static void ask(const char *path, char **word, int lines_of_a_map, char *answer, size_t bytes)
{
    char command[512];
    snprintf(command, sizeof command, "*3\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(word[0]), word[0],
             strlen(word[1]), word[1], strlen(word[2]), word[2]);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int file = socket(AF_UNIX, SOCK_STREAM, 0), lines = 0;
    size_t have = 0;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (file < 0 || connect(file, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    if (write(file, command, strlen(command)) != (ssize_t)strlen(command))
        fail("write");
    do {
        if (have + 1 >= bytes || read(file, answer + have, 1) != 1)
            fail("read");
        lines += answer[have++] == '\n';
    } while (lines < (answer[0] == '*' ? lines_of_a_map : 1));
    answer[have] = '\0';
    close(file);
}

/* The line that follows the one with this word, in a map that came as RESP2: both have their length before them. */
static char *value_of(char *answer, const char *word, char kind)
{
    char *found = strstr(answer, word);
    found = found ? strchr(found, '\n') : NULL;
    if (found && kind == '$')
        found = strchr(found + 1, '\n');
    return found ? strtok(found + 1 + (kind == ':'), "\r") : NULL;
}

int main(int words, char **word)
{
    char answer[1024], copy[1024];
    sigset_t ends;
    int number;
    if (words != 4)
        return 64;
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    ask(word[1], (char *[]){"LOCK", word[2], word[3]}, LINES_OF_A_LEASE, answer, sizeof answer);
    memcpy(copy, answer, sizeof copy);
    char *token = value_of(answer, "token", '$'), *fence = value_of(copy, "fence", ':');
    if (!token || !fence) {
        printf("refused: %s", answer);
        return 1;
    }
    printf("held %s\n", fence);
    sigwait(&ends, &number);
    ask(word[1], (char *[]){"UNLOCK", word[2], token}, 1, answer, sizeof answer);
    printf("unlocked %s", answer);
    return 0;
}
