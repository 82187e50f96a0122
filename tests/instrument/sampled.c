/* A program without instrumentation, for samples. `shares N`: 20, 30 and 50 % of its processor time are in known functions, which it
 * measures itself and prints: seconds of `small`, `middle` (inlined in `holds`), `large` (below a recursion). Other modes do what a
 * sampler must not disturb, and print what they did. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile double sink;

static double processor(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static inline __attribute__((always_inline)) double spin(long rounds, double step) {
    double sum = 0;
    for (long i = 1; i <= rounds; i++) sum += step / i;
    return sum;
}

__attribute__((noinline)) void small(long rounds) { sink += spin(rounds, 1); }

static inline __attribute__((always_inline)) void middle(long rounds) { sink += spin(rounds, 2); }

__attribute__((noinline)) void holds(long rounds) { middle(rounds); sink += 1; }

__attribute__((noinline)) void large(long rounds) { sink += spin(rounds, 3); }

__attribute__((noinline)) void deeper(int depth, long rounds) {
    if (depth == 0)
        large(rounds);
    else
        deeper(depth - 1, rounds);
    sink += depth;
}

static void shares(int turns) {
    double sums[3] = {0};
    for (int turn = 0; turn < turns; turn++) {
        // Of different lengths: timers are bound to the tick of the kernel.
        long unit = 10000 + turn * 7919L % 20011;
        double times[4];
        times[0] = processor();
        small(2 * unit);
        times[1] = processor();
        holds(3 * unit);
        times[2] = processor();
        deeper(7, 5 * unit);
        times[3] = processor();
        for (int i = 0; i < 3; i++) sums[i] += times[i + 1] - times[i];
    }
    printf("small %.6f middle %.6f large %.6f\n", sums[0], sums[1], sums[2]);
}

static void *short_life(void *turns) {
    large(*(long *)turns);
    return NULL;
}

static void threads(int number, long rounds) {
    int ended = 0;
    for (int turn = 0; turn < number / 8; turn++) {
        pthread_t each[8];
        for (int i = 0; i < 8; i++) pthread_create(&each[i], NULL, short_life, &rounds);
        for (int i = 0; i < 8; i++) ended += pthread_join(each[i], NULL) == 0;
    }
    printf("%d threads\n", ended);
}

static volatile int is_over;

__attribute__((noinline)) void tiny(long rounds) { sink += spin(rounds, 4); }

/* Writes its processor time to memory that outlasts the process. */
static void *counted(void *time) {
    while (!is_over) {
        for (int i = 0; i < 20; i++) tiny(1000);
        *(volatile double *)time = processor();
    }
    return NULL;
}

/* Four threads, of which the file has the processor times, seconds; then the process ends. */
static void ends(const char *how, const char *path) {
    pthread_t each[4];
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, sizeof(double[4]))) exit(3);
    double *times = mmap(NULL, sizeof(double[4]), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (times == MAP_FAILED) exit(3);
    for (int i = 0; i < 4; i++) pthread_create(&each[i], NULL, counted, &times[i]);
    struct timespec nap = {1, 200000000};
    nanosleep(&nap, NULL);
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    is_over = 1;
    for (int i = 0; i < 4; i++) pthread_join(each[i], NULL);
}

static void children(const char *self) {
    static int good, turn;
    for (turn = 0; turn < 20; turn++) {
        pid_t child = turn % 2 ? vfork() : fork();
        if (child == 0) {
            if (turn % 2) execl(self, self, "exit", "7", (char *)NULL);
            large(2000000);
            _exit(7);
        }
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
        good += WIFEXITED(status) && WEXITSTATUS(status) == 7;
        large(1000000);
    }
    printf("%d children\n", good);
}

static jmp_buf back;

__attribute__((noinline)) void jumps(int depth) {
    large(1000);
    if (depth == 0) longjmp(back, 1);
    if (depth > 0) jumps(depth - 1);
    sink += 1;
}

static volatile sig_atomic_t handled;

static void handler(int signal) {
    small(20000);
    handled++;
    (void)signal;
}

/* Loops that do not expect EINTR, all real-time signals, and a full set to wait for. */
static void signals(void) {
    struct timespec nap = {0, 2000000};
    int interrupted = 0;
    for (int turn = 0; turn < 100; turn++) {
        interrupted += nanosleep(&nap, NULL) != 0;
        large(200000);
    }
    for (int signal = SIGRTMIN; signal <= SIGRTMAX; signal++) sigaction(signal, &(struct sigaction){.sa_handler = handler}, NULL);
    sigaction(SIGPROF, &(struct sigaction){.sa_handler = handler}, NULL);
    for (int turn = 0; turn < 200; turn++) {
        raise(SIGRTMIN + turn % 8);
        raise(SIGPROF);
        large(20000);
    }
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    large(5000000);
    struct timespec none = {0, 0};
    int waiting = sigtimedwait(&all, NULL, &none) > 0;
    printf("%d interrupted, %d handled, %d waiting\n", interrupted, (int)handled, waiting);
}

/* Blocks all signals, waits for all, and sets all to their defaults, as programs do that start others; and asks what is set. */
static void sweeps(void) {
    sigset_t all, before;
    sigfillset(&all);
    int handlers = 0, waiting = 0, failed = 0;
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        struct sigaction set = {.sa_handler = SIG_DFL}, found = {.sa_handler = SIG_DFL};
        sigaction(signal, NULL, &found);
        handlers += signal >= SIGRTMIN && found.sa_handler != SIG_DFL;
        sigaction(signal, &set, NULL);
        handlers += signal >= SIGRTMIN && sysv_signal(signal, SIG_IGN) != SIG_DFL;
        handlers += signal >= SIGRTMIN && ssignal(signal, SIG_DFL) != SIG_IGN;
        large(200000);
    }
    int descriptor = signalfd(-1, &all, SFD_NONBLOCK);
    struct signalfd_siginfo info;
    failed += pthread_sigmask(SIG_SETMASK, &all, &before) != 0;
    for (int turn = 0; turn < 40; turn++) {
        struct timespec some = {0, 1000};
        large(1000000);
        waiting += sigtimedwait(&all, NULL, &some) > 0;
        waiting += read(descriptor, &info, sizeof info) > 0;
    }
    raise(SIGUSR1);
    int signal = 0;
    failed += sigwait(&all, &signal) != 0 || signal != SIGUSR1;
    failed += sigprocmask(SIG_SETMASK, &before, NULL) != 0;
    large(20000000);
    printf("%d handlers, %d waiting, %d failed\n", handlers, waiting, failed);
}

static jmp_buf out;

__attribute__((noinline)) static int grow(int depth) {
    volatile char room[1024];
    room[depth % 1024] = 1;
    large(100);
    return depth == 0 ? 0 : grow(depth + 1) + room[depth % 1024];
}

static void overflowed(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}

/* Stacks that overflow, of which the program knows. */
static void overflows(int number) {
    static char other[1 << 16];
    sigaltstack(&(stack_t){.ss_sp = other, .ss_size = sizeof other}, NULL);
    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = overflowed, .sa_flags = SA_ONSTACK}, NULL);
    static int caught, turn;
    for (turn = 0; turn < number; turn++)
        if (sigsetjmp(out, 1)) caught++;
        else grow(1);
    printf("%d overflows\n", caught);
}

static void *exits(void *rounds) {
    large(*(long *)rounds);
    pthread_exit(NULL);
}

static atomic_int is_done;
static pid_t tormented;

/* Sends the signal by which samples are taken, every 20 us. It is the real-time signal that has a handler; without one, nothing is sent. */
static void *torments(void *none) {
    unsigned long caught = 0;
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "SigCgt:", 7)) caught = strtoul(line + 7, NULL, 16);
    if (status) fclose(status);
    int signal = SIGRTMAX;
    while (signal >= SIGRTMIN && !(caught >> (signal - 1) & 1)) signal--;
    struct timespec pause = {0, 20000};
    while (!is_done && signal >= SIGRTMIN) {
        syscall(SYS_tgkill, getpid(), tormented, signal);
        nanosleep(&pause, NULL);
    }
    return none;
}

/* Allocates, loads libraries, starts processes and threads, and jumps, while samples are taken anywhere. */
static void forced(const char *self, int count, char **libraries) {
    pthread_t thread;
    tormented = gettid();
    pthread_create(&thread, NULL, torments, NULL);
    static int turn, jumped;
    void *blocks[64] = {NULL};
    for (turn = 0; turn < 20000; turn++) {
        free(blocks[turn % 64]);
        blocks[turn % 64] = malloc(turn * 37 % 5000);
    }
    for (turn = 0; turn < 200; turn++)
        if (setjmp(back)) jumped++;
        else jumps(30);
    int loaded = 0, joined = 0;
    for (turn = 0; turn < 200; turn++) {
        void *library = dlopen(libraries[turn % count], RTLD_NOW);
        loaded += library != NULL;
        if (library) dlclose(library);
    }
    long rounds = 1000;
    for (turn = 0; turn < 1000; turn++) {
        pthread_t other;
        pthread_create(&other, NULL, turn % 2 ? exits : short_life, &rounds);
        joined += pthread_join(other, NULL) == 0;
    }
    children(self);
    overflows(5);
    is_done = 1;
    pthread_join(thread, NULL);
    printf("%d jumps, %d libraries, %d threads\n", jumped, loaded, joined);
}

/* As daemons do: closes all descriptors, and opens others under these numbers. */
static void descriptors(void) {
    for (int number = 3; number < 256; number++) close(number);
    int first = dup(1), good = 0;
    for (int i = 1; i < 64; i++) dup2(first, first + i);
    large(30000000);
    for (int i = 0; i < 64; i++) good += fcntl(first + i, F_GETFD) >= 0;
    printf("%d descriptors\n", good);
}

static ucontext_t main_context, other_context;

static void on_other_stack(void) { large(20000000); }

#if defined(__x86_64__)
/* Without unwind tables, and with a frame pointer that is none. */
__asm__(".text\n.globl untabled\n.type untabled, @function\nuntabled:\n"
        "push %rbp\npush %rbx\nmov $0x1234567, %rbp\nmov %rdi, %rbx\n"
        "1: dec %rbx\njnz 1b\npop %rbx\npop %rbp\nret\n.size untabled, .-untabled\n");
extern void untabled(long rounds);
#else
static void untabled(long rounds) { large(rounds); }
#endif

__attribute__((noinline)) void around_untabled(void) { untabled(200000000); sink += 1; }

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    int number = count > 2 ? atoi(arguments[2]) : 0;
    if (!strcmp(mode, "shares")) {
        shares(number);
    } else if (!strcmp(mode, "exit")) {
        return number;
    } else if (!strcmp(mode, "threads")) {
        threads(number, 100000);
    } else if (!strcmp(mode, "long-threads")) {
        threads(8, 200000000 / 8);
    } else if (!strcmp(mode, "ends")) {
        ends(arguments[2], arguments[3]);
    } else if (!strcmp(mode, "children")) {
        children(arguments[0]);
    } else if (!strcmp(mode, "jumps")) {
        static int jumped, turn;
        for (turn = 0; turn < 2000; turn++)
            if (setjmp(back)) jumped++;
            else jumps(30);
        printf("%d jumps\n", jumped);
    } else if (!strcmp(mode, "signals")) {
        signals();
    } else if (!strcmp(mode, "sweeps")) {
        sweeps();
    } else if (!strcmp(mode, "overflows")) {
        overflows(number);
    } else if (!strcmp(mode, "forced")) {
        forced(arguments[0], count - 2, arguments + 2);
    } else if (!strcmp(mode, "execs")) {
        char left[12];
        large(4000000);
        snprintf(left, sizeof left, "%d", number - 1);
        if (number > 0) execl(arguments[0], arguments[0], "execs", left, (char *)NULL);
        printf("the last one\n");
    } else if (!strcmp(mode, "descriptors")) {
        descriptors();
    } else if (!strcmp(mode, "contexts")) {
        static char stack[1 << 16];
        getcontext(&other_context);
        other_context.uc_stack.ss_sp = stack;
        other_context.uc_stack.ss_size = sizeof stack;
        other_context.uc_link = &main_context;
        makecontext(&other_context, on_other_stack, 0);
        swapcontext(&main_context, &other_context);
        printf("came back\n");
    } else if (!strcmp(mode, "untabled")) {
        around_untabled();
        printf("untabled\n");
    } else if (!strcmp(mode, "libraries")) {
        int loaded = 0;
        for (int turn = 0; turn < number; turn++) {
            void *library = dlopen(arguments[3 + turn % (count - 3)], RTLD_NOW);
            int (*function)(int) = library ? (int (*)(int))dlsym(library, "of_library") : NULL;
            if (function) loaded += function(2000000) != 0;
            if (library) dlclose(library);
        }
        printf("%d libraries\n", loaded);
    } else {
        fprintf(stderr, "no such mode\n");
        return 2;
    }
    return 0;
}
