// Ends in one of several ways while it is in `hot`, and while a thread waits in `idle`. The file of its second argument
// has, in seconds of CLOCK_MONOTONIC, when that thread entered `idle` and when it was last alive there.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define QUIET __attribute__((no_instrument_function))

static const char *how;
static volatile double *truth;

QUIET static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

QUIET static void pass_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, 0);
}

static void pause_ms(long ms) { pass_ms(ms); }

void prepare(void) { pause_ms(100); }

void *idle(void *unused) {
    double until = now() + 0.4;
    for (truth[0] = now();; pass_ms(1)) {
        truth[1] = now();
        if (!strcmp(how, "thread") && now() > until) exit(0);
    }
    return unused;
}

void hot(void) {
    if (!strcmp(how, "thread") || !strcmp(how, "hang"))
        for (;;) pass_ms(1000);
    pause_ms(400);
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "segv")) raise(SIGSEGV);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "exit")) exit(0);
}

int main(int count, char **arguments) {
    pthread_t thread;
    int file = count == 3 ? open(arguments[2], O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ftruncate(file, 2 * sizeof(double))) return 9;
    truth = mmap(0, 2 * sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (truth == MAP_FAILED) return 9;
    how = arguments[1];
    pthread_create(&thread, 0, idle, 0);
    prepare();
    hot();
}
