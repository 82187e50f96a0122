// Functions with hooks are left by exceptions, longjmp, the ends of their threads, and cancellation, also while a hook runs. Prints how
// often the innermost function was called.
#include <atomic>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <unistd.h>

static std::atomic<int> calls, arrived;
static const char *way;
static thread_local jmp_buf place;

static void innermost() {
    calls++;
    if (!strcmp(way, "throw"))
        throw 42;
    if (!strcmp(way, "longjmp"))
        longjmp(place, 1);
    if (!strcmp(way, "exit"))
        pthread_exit(NULL);
    // Another thread cancels this one, wherever it is.
    pthread_testcancel();
}

static void middle(int depth) {
    if (depth)
        middle(depth - 1);
    else
        innermost();
}

static void *thread(void *) {
    if (!strcmp(way, "throw")) {
        try {
            middle(2);
        } catch (int what) {
            arrived += what == 42;
        }
    } else if (!strcmp(way, "longjmp")) {
        if (setjmp(place) == 0)
            middle(2);
        else
            arrived++;
    } else {
        for (;;)
            middle(2);
    }
    return NULL;
}

int main(int, char **arguments) {
    const int turns = 40;
    way = arguments[1];
    for (int turn = 0; turn < turns; turn++) {
        pthread_t other;
        void *result = NULL;
        pthread_create(&other, NULL, thread, NULL);
        if (!strcmp(way, "cancel")) {
            usleep(turn * 37);
            pthread_cancel(other);
        }
        pthread_join(other, &result);
        arrived += !strcmp(way, "exit") || result == PTHREAD_CANCELED;
    }
    if (arrived != turns)
        abort();
    printf("%d\n", calls.load());
    return 0;
}
