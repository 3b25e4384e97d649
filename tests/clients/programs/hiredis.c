/* hiredis: a context is a connection, for one caller at a time. */
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MOST = 32, CLIENTS_MOST = 26 };

static struct { redisContext *context; struct timeval timeout; } clients[CLIENTS_MOST];

static const char *no_error = "";
static const char *ping[] = { "PING" };
static const char *before[] = { "ECHO", "a" };
static const char *after[] = { "ECHO", "b" };
static const char *multi[] = { "MULTI" };
static const char *exec[] = { "EXEC" };

static void flat(const redisReply *reply) {
    if (reply->type == REDIS_REPLY_INTEGER) printf(" %lld", reply->integer);
    else if (reply->type == REDIS_REPLY_NIL) printf(" nil");
    else if (reply->elements) for (size_t i = 0; i < reply->elements; i++) flat(reply->element[i]);
    else printf(" %s", reply->str);
}

/* After an error a context is of no use: what waits on it has to be given up with its connection. */
static void reopen(int which) {
    redisReconnect(clients[which].context);
    redisSetTimeout(clients[which].context, clients[which].timeout);
}

static void open_client(int which, const char *path, const char *timeout_ms) {
    long ms = atol(timeout_ms);
    clients[which].timeout = (struct timeval){ ms / 1000, ms % 1000 * 1000 };
    clients[which].context = redisConnectUnix(path);
    redisSetTimeout(clients[which].context, clients[which].timeout);
}

static void append(int which, int count, const char **words) {
    redisAppendCommandArgv(clients[which].context, count, words, NULL);
}

static void answer(const char *tag, int which, int replies) {
    redisReply *all[3] = { 0 };
    const char *error = no_error;
    for (int i = 0; i < replies; i++) {
        if (redisGetReply(clients[which].context, (void **)&all[i]) != REDIS_OK) { error = clients[which].context->errstr; break; }
        if (all[i]->type == REDIS_REPLY_ERROR && error == no_error) error = all[i]->str;
    }
    printf("%s %s", tag, error == no_error ? "+" : "- ");
    if (error == no_error) for (int i = 0; i < replies; i++) flat(all[i]);
    printf("%s\n", error);
    for (int i = 0; i < replies; i++) if (all[i]) freeReplyObject(all[i]);
    if (clients[which].context->err) reopen(which);
}

int main(int count, char **arguments) {
    char line[4096];
    setlinebuf(stdout);
    signal(SIGPIPE, SIG_IGN); /* else a restart of the agent ends the program at its next command */
    while (count == 2 && fgets(line, sizeof line, stdin)) {
        const char *words[WORDS_MOST];
        int many = 0;
        for (char *word = strtok(line, " \n"); word && many < WORDS_MOST; word = strtok(NULL, " \n")) words[many++] = word;
        const char *tag = words[0], *verb = words[1];
        int which = words[2][0] - 'a', replies = 1;
        if (!strcmp(verb, "open")) open_client(which, arguments[1], words[3]);
        else if (!strcmp(verb, "drop")) reopen(which);
        if (!strcmp(verb, "open") || !strcmp(verb, "drop")) { append(which, 1, ping); answer(tag, which, 1); continue; }
        if (!strcmp(verb, "multi")) { append(which, 1, multi); replies = 3; }
        if (!strcmp(verb, "pipe")) { append(which, 2, before); replies = 3; }
        append(which, many - 3, words + 3);
        if (!strcmp(verb, "multi")) append(which, 1, exec);
        if (!strcmp(verb, "pipe")) append(which, 2, after);
        answer(tag, which, replies);
    }
    return 0;
}
