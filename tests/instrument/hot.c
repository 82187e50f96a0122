// Ends in one of several ways while it is in `hot`, and while a thread waits in `idle`.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *how;

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, 0);
}

void prepare(void) { pause_ms(100); }

void *idle(void *unused) {
    for (;;)
        pause();
    return unused;
}

void hot(void) {
    pause_ms(400);
    if (!strcmp(how, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(how, "segv"))
        raise(SIGSEGV);
    if (!strcmp(how, "abort"))
        abort();
    if (!strcmp(how, "exit"))
        exit(0);
    for (;;)
        pause_ms(1);
}

int main(int count, char **arguments) {
    pthread_t thread;
    how = count > 1 ? arguments[1] : "exit";
    pthread_create(&thread, 0, idle, 0);
    prepare();
    hot();
}
