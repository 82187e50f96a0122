/* What constructs of OpenMP take: prints a name and nanoseconds each, the least of some rounds. Two threads, pinned by OMP_PLACES. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * time.tv_sec + time.tv_nsec;
}

#define ROUNDS 15
#define MEASURE(name, count, ...) \
    do { \
        double least = 1e300; \
        for (int round = 0; round < ROUNDS; round++) { \
            double begun = now_ns(); \
            __VA_ARGS__; \
            double took = (now_ns() - begun) / (count); \
            if (took < least) least = took; \
        } \
        printf("%s %.2f\n", name, least); \
    } while (0)

int main(void) {
    enum { COUNT = 2000 };
    omp_lock_t lock;
    omp_init_lock(&lock);
    volatile int sum = 0;
    MEASURE("lock", COUNT, for (int i = 0; i < COUNT; i++) { omp_set_lock(&lock); omp_unset_lock(&lock); });
    MEASURE("critical", COUNT, for (int i = 0; i < COUNT; i++) {
        _Pragma("omp critical") sum += 1;
    });
    /* A team of one: what its thread does alone. */
    MEASURE("parallel-1", COUNT, for (int i = 0; i < COUNT; i++) {
        _Pragma("omp parallel num_threads(1)") sum += 1;
    });
    MEASURE("dynamic-1", COUNT, _Pragma("omp parallel num_threads(1)") for (int i = 0; i < COUNT; i++) {
        _Pragma("omp for schedule(dynamic) nowait") for (int j = 0; j < 1; j++) sum += 1;
    });
    MEASURE("barrier-1", COUNT, _Pragma("omp parallel num_threads(1)") for (int i = 0; i < COUNT; i++) {
        _Pragma("omp barrier")
    });
    MEASURE("task-1", COUNT, _Pragma("omp parallel num_threads(1)") for (int i = 0; i < COUNT; i++) {
        _Pragma("omp task if(0)") sum += 1;
    });
    MEASURE("parallel-2", COUNT, for (int i = 0; i < COUNT; i++) {
        _Pragma("omp parallel num_threads(2)") { __asm__ volatile(""); }
    });
    MEASURE("barrier-2", COUNT, _Pragma("omp parallel num_threads(2)") for (int i = 0; i < COUNT; i++) {
        _Pragma("omp barrier")
    });
    omp_destroy_lock(&lock);
    return 0;
}
