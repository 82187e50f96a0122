/* Children made by fork and clone, in the ways that the first argument names. Prints how often the functions that are counted were called, in
   all processes together. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOT_RECORDED __attribute__((no_instrument_function))

/* Calls of `work`, in memory that all processes share. */
static long *calls;

void work(void) { __atomic_add_fetch(calls, 1, __ATOMIC_RELAXED); }

NOT_RECORDED static void work_often(int times) {
    for (int i = 0; i < times; i++) work();
}

NOT_RECORDED static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0);
}

/* Waits for a child; returns its exit code, or the negative signal. */
NOT_RECORDED static int end_of(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int in_clone(void *times) {
    work_often((int)(long)times);
    return 3;
}

NOT_RECORDED static pid_t clone_child(long times) {
    static char stack[1 << 18] __attribute__((aligned(16)));
    return clone(in_clone, stack + sizeof stack, SIGCHLD, (void *)times);
}

void *in_thread(void *times) {
    work_often((int)(long)times);
    return 0;
}

/* Threads that hold locks of the C library nearly always. */
NOT_RECORDED static void *allocate(void *_) {
    for (;;) {
        char *volatile small = malloc(1 << 12);
        free(small);
    }
    return _;
}

NOT_RECORDED static void *load(void *_) {
    for (;;) {
        void *library = dlopen("libresolv.so.2", RTLD_NOW);
        if (library) dlclose(library);
    }
    return _;
}

NOT_RECORDED static void *print(void *file) {
    for (;;) fprintf(file, "%d\n", 7), fflush(0);
    return 0;
}

static volatile sig_atomic_t forked;

/* Forks in a signal handler; the child works there, and after it. */
NOT_RECORDED static void fork_here(int signal) {
    (void)signal;
    forked = fork();
    if (forked == 0) work_often(3000);
}

/* Forks inside of `depth` calls. */
pid_t nested(int depth) {
    if (depth == 0) return fork();
    pid_t child = nested(depth - 1);
    __asm__ volatile("");
    return child;
}

NOT_RECORDED static int run(const char *mode) {
    int code = 0;
    pid_t child;
    if (!strcmp(mode, "two-of-three")) {
        /* Two children call a function, the third one does nothing that is recorded. */
        for (int n = 0; n < 3; n++)
            if (fork() == 0) {
                if (n < 2) work();
                _exit(0);
            }
        while (wait(0) > 0);
    } else if (!strcmp(mode, "exit")) {
        child = fork();
        if (child == 0) {
            work_often(1000);
            exit(3);
        }
        code = end_of(child);
    } else if (!strcmp(mode, "short")) {
        /* Ends before it has a recorder. */
        child = fork();
        if (child == 0) {
            work_often(10);
            exit(3);
        }
        code = end_of(child);
    } else if (!strcmp(mode, "_exit")) {
        child = fork();
        if (child == 0) {
            work_often(1000);
            _exit(3);
        }
        code = end_of(child);
    } else if (!strcmp(mode, "slow")) {
        /* Few events, in a longer time. */
        child = fork();
        if (child == 0) {
            for (int i = 0; i < 40; i++) work(), sleep_ms(1);
            _exit(3);
        }
        code = end_of(child);
    } else if (!strcmp(mode, "killed")) {
        child = fork();
        if (child == 0) {
            work_often(1000);
            kill(getpid(), SIGKILL);
        }
        code = end_of(child) == -SIGKILL ? 3 : 1;
    } else if (!strcmp(mode, "exec") || !strcmp(mode, "short-_exit")) {
        child = fork();
        if (child == 0) {
            /* Nothing records these. */
            long before = *calls;
            work_often(10);
            __atomic_store_n(calls, before, __ATOMIC_RELAXED);
            if (!strcmp(mode, "exec")) execl("/bin/sh", "sh", "-c", "exit 3", (char *)0);
            _exit(3);
        }
        code = end_of(child);
    } else if (!strcmp(mode, "daemon")) {
        int ends[2];
        if (pipe(ends) != 0) return 1;
        child = fork();
        if (child == 0) {
            close(ends[0]);
            setsid();
            if (fork() != 0) _exit(3);
            sleep_ms(30);
            work_often(1000);
            exit(0);
        }
        close(ends[1]);
        code = end_of(child);
        char byte;
        /* Until all that have the pipe are gone. */
        while (read(ends[0], &byte, 1) > 0);
    } else if (!strcmp(mode, "left")) {
        /* A child that outlives this process. */
        child = fork();
        if (child == 0) {
            setsid();
            if (fork() != 0) _exit(3);
            sleep_ms(1000);
            work_often(1000);
            exit(0);
        }
        code = end_of(child);
    } else if (!strcmp(mode, "clone")) {
        code = end_of(clone_child(1000));
    } else if (!strcmp(mode, "short-clone")) {
        code = end_of(clone_child(10));
    } else if (!strcmp(mode, "thread")) {
        /* The child's first events are another thread's. */
        child = fork();
        if (child == 0) {
            work_often(5);
            pthread_t thread;
            pthread_create(&thread, 0, in_thread, (void *)500);
            pthread_join(thread, 0);
            work_often(5);
            exit(3);
        }
        code = end_of(child);
    } else if (!strcmp(mode, "chain")) {
        /* Each child is forked by the one before. */
        for (int n = 0; n < 5; n++) {
            child = fork();
            if (child != 0) {
                int ended = end_of(child);
                if (n == 0) {
                    code = ended;
                    break;
                }
                exit(ended);
            }
            work_often(600);
            if (n == 4) exit(3);
        }
    } else if (!strcmp(mode, "nested")) {
        child = nested(100);
        if (child == 0) {
            work_often(1000);
            exit(3);
        }
        code = end_of(child);
    } else if (!strcmp(mode, "handler")) {
        struct sigaction action = {.sa_handler = fork_here};
        sigaction(SIGUSR1, &action, 0);
        raise(SIGUSR1);
        if (forked == 0) {
            work_often(1000);
            exit(3);
        }
        code = end_of(forked);
    } else if (!strcmp(mode, "locks")) {
        pthread_t thread;
        FILE *null = fopen("/dev/null", "w");
        for (int n = 0; n < 2; n++) {
            pthread_create(&thread, 0, allocate, 0);
            pthread_create(&thread, 0, print, null);
        }
        pthread_create(&thread, 0, load, 0);
        code = 3;
        for (int n = 0; n < 50; n++) {
            child = fork();
            if (child == 0) {
                /* One that waits for such a lock must end. */
                alarm(20);
                work_often(1000);
                /* `exit` waits for a lock of the loader here, also where nothing is recorded. */
                _exit(3);
            }
            if (end_of(child) != 3) code = 1;
        }
    } else if (!strcmp(mode, "locks-clone")) {
        pthread_t thread;
        pthread_create(&thread, 0, allocate, 0);
        long before = *calls;
        code = end_of(clone_child(1000));
        *calls = before;
    } else {
        return 1;
    }
    return code;
}

int main(int argc, char **argv) {
    void *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc < 2 || shared == MAP_FAILED) return 1;
    calls = shared;
    work_often(100);
    int code = run(argv[1]);
    work_often(100);
    printf("%ld\n", *calls);
    fflush(stdout);
    if (argc > 2) _exit(code);
    return code;
}
