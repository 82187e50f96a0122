/* A program with constructs of OpenMP that counts them itself: prints each one's name and number.
 *
 *     constructs HOW      return: from main; exit: a thread of a team calls exit in its parallel region; threads: threads of the program
 *                         have teams; nested: teams in teams; fork: children are made in a parallel region */
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARALLEL, DYNAMIC, GUIDED, STATIC, SECTIONS, SINGLE, BARRIER, CRITICAL, LOCK, NEST_LOCK, MASTER, TASK, TASKWAIT, TASKGROUP, ORDERED, TRY, KINDS };
static const char *const NAMES[KINDS] = {"parallel", "dynamic", "guided", "static", "sections", "single", "barrier", "critical",
    "omp_set_lock", "omp_set_nest_lock", "masked", "task", "taskwait", "taskgroup", "ordered", "try"};
static int counts[KINDS];
static volatile double sum;

static void count(int kind) { __atomic_add_fetch(&counts[kind], 1, __ATOMIC_RELAXED); }

static void work(int steps) {
    double mine = 0;
    for (int i = 0; i < steps * 2000; i++) mine += i;
    sum = mine;
}

static void report(void) {
    for (int kind = 0; kind < KINDS; kind++) printf("%s %d\n", NAMES[kind], counts[kind]);
    fflush(stdout);
}

/* Each thread counts what it executes; a barrier is at the end of each construct without nowait. */
static void constructs(int threads) {
    omp_lock_t lock;
    omp_nest_lock_t nest_lock;
    omp_init_lock(&lock);
    omp_init_nest_lock(&nest_lock);
#pragma omp parallel num_threads(threads)
    {
        count(PARALLEL), count(BARRIER);
        count(STATIC);
#pragma omp for schedule(static) nowait
        for (int i = 0; i < 8; i++) work(i);
        count(DYNAMIC);
#pragma omp for schedule(dynamic, 1) nowait
        for (int i = 0; i < 8; i++) work(i);
        count(GUIDED), count(BARRIER);
#pragma omp for schedule(guided)
        for (int i = 0; i < 8; i++) work(i);
        count(SECTIONS), count(BARRIER);
#pragma omp sections
        {
#pragma omp section
            work(3);
#pragma omp section
            work(1);
        }
#pragma omp critical
        count(CRITICAL), work(1);
#pragma omp critical(named)
        count(CRITICAL), work(1);
        omp_set_lock(&lock);
        count(LOCK), work(2);
        omp_unset_lock(&lock);
        count(TRY);
        if (omp_test_lock(&lock)) omp_unset_lock(&lock);
        omp_set_nest_lock(&nest_lock), count(NEST_LOCK);
        omp_set_nest_lock(&nest_lock), count(NEST_LOCK);
        omp_unset_nest_lock(&nest_lock);
        omp_unset_nest_lock(&nest_lock);
        count(BARRIER);
#pragma omp barrier
#pragma omp master
        count(MASTER), work(1);
        count(BARRIER);
#pragma omp single
        {
            count(SINGLE);
            int data[4] = {0};
            (void)data;
            for (int i = 0; i < 12; i++) {
#pragma omp task depend(inout : data[i % 4]) firstprivate(i)
                {
                    count(TASK), work(i);
                    if (i % 5 == 0) {
#pragma omp task
                        count(TASK);
                        count(TASKWAIT);
#pragma omp taskwait
                    }
                }
            }
            count(TASKWAIT);
#pragma omp taskwait
            count(TASKGROUP);
#pragma omp taskgroup
            {
#pragma omp task if (0)
                count(TASK), work(1);
#pragma omp task untied
                count(TASK), work(1);
            }
        }
        count(DYNAMIC), count(BARRIER);
#pragma omp for ordered schedule(dynamic, 1)
        for (int i = 0; i < 6; i++) {
            work(1);
#pragma omp ordered
            count(ORDERED);
        }
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 2)
    for (int i = 0; i < 20; i++) work(i);
    counts[PARALLEL] += threads, counts[DYNAMIC] += threads, counts[BARRIER] += threads;
    omp_destroy_lock(&lock);
    omp_destroy_nest_lock(&nest_lock);
}

static void *of_thread(void *unused) {
    (void)unused;
    for (int turn = 0; turn < 3; turn++) {
#pragma omp parallel num_threads(2)
        {
            count(PARALLEL), count(BARRIER);
#pragma omp critical
            count(CRITICAL), work(1);
        }
    }
    return NULL;
}

static int inner;

static void nested(void) {
    omp_set_max_active_levels(3);
#pragma omp parallel num_threads(2)
    {
        count(PARALLEL), count(BARRIER);
#pragma omp parallel num_threads(2)
        {
            count(PARALLEL), count(BARRIER);
            work(5);
            /* All four are there: no thread is in both teams. */
            int arrived = __atomic_add_fetch(&inner, 1, __ATOMIC_RELAXED);
            while (__atomic_load_n(&inner, __ATOMIC_RELAXED) < (arrived + 3) / 4 * 4) usleep(100);
        }
    }
}

static void forks(void) {
#pragma omp parallel num_threads(2)
    {
        count(PARALLEL), count(BARRIER);
        if (omp_get_thread_num() == 1) {
            pid_t child = fork();
            if (child == 0) {
                work(1);
                _exit(3);
            }
            int status;
            waitpid(child, &status, 0);
            if (WEXITSTATUS(status) != 3) abort();
        }
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "return";
    if (strcmp(how, "threads") == 0) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, of_thread, NULL);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        report();
    } else if (strcmp(how, "nested") == 0) {
        for (int turn = 0; turn < 3; turn++) nested();
        report();
    } else if (strcmp(how, "fork") == 0) {
        forks();
        report();
    } else if (strcmp(how, "exit") == 0) {
        constructs(2);
#pragma omp parallel num_threads(3)
        {
            count(PARALLEL);
#pragma omp critical
            count(CRITICAL);
            /* All have been there. */
            while (__atomic_load_n(&counts[CRITICAL], __ATOMIC_RELAXED) < 4 + 3) usleep(100);
            if (omp_get_thread_num() == 1) {
                report();
                exit(7);
            }
            for (;;) pause();
        }
    } else {
        for (int turn = 0; turn < 3; turn++) constructs(3);
        report();
    }
    return 0;
}
