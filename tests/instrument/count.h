/* A counter of calls, compiled into the functions themselves: what the trace is compared with. */
#pragma once
#include <atomic>

struct Count {
    const char *name, *file;
    int line;
    std::atomic<unsigned long> calls{0};
    Count *next;
    Count(const char *name, const char *file, int line);
};

/* Belongs on a function's first line, the one with its name. */
#define COUNT(name)                                                                                \
    static Count count_(name, __FILE__, __LINE__);                                                 \
    count_.calls++

/* Functions with this attribute are not recorded. */
#define QUIET __attribute__((no_instrument_function))
