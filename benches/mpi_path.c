/* What a call costs.
 *
 * usage: mpi_path send ROUNDS CALLS   ns per MPI_Send to MPI_PROC_NULL, and ns for two clock reads
 *        mpi_path ping ROUNDS CALLS   ns per call of a ping-pong of 8 bytes between ranks 0 and 1
 *        mpi_path self ROUNDS CALLS   ns per call of MPI_Isend, MPI_Recv, MPI_Wait, of a rank with itself
 *        mpi_path jump ROUNDS CALLS   ns per MPI_Send to MPI_PROC_NULL before and after a longjmp out of an error handler
 *
 * Prints a line for each round. CALLS is how many times each function is called in a round. */
#include <mpi.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static inline uint64_t ticks(void) {
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#endif
}

static void send(int calls) {
    static volatile uint64_t stored[8];
    long word = 0;
    double start = now_ns();
    for (int i = 0; i < calls; i++) MPI_Send(&word, 1, MPI_LONG, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    double send = (now_ns() - start) / calls;
    start = now_ns();
    for (int i = 0; i < calls; i++) {
        stored[0] = ticks();
        stored[4] = ticks();
    }
    printf("%.2f %.2f\n", send, (now_ns() - start) / calls);
}

static jmp_buf left;
static void leave(MPI_Comm *comm, int *error, ...) {
    (void)comm, (void)error;
    longjmp(left, 1);
}

static double sends(int calls) {
    long word = 0;
    double start = now_ns();
    for (int i = 0; i < calls; i++) MPI_Send(&word, 1, MPI_LONG, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    return (now_ns() - start) / calls;
}

static void jump(int calls) {
    static double before;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(leave, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    sends(calls / 8);
    before = sends(calls);
    long word = 0;
    if (setjmp(left) == 0) MPI_Send(&word, 1, MPI_LONG, 1 << 20, 0, MPI_COMM_WORLD);
    printf("%.2f %.2f\n", before, sends(calls));
}

static void ping(int calls, int rank) {
    long word = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_ns();
    for (int i = 0; i < calls && rank < 2; i++) {
        if (rank == 0) {
            MPI_Send(&word, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(&word, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&word, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(&word, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
        }
    }
    if (rank == 0) printf("%.2f\n", (now_ns() - start) / (2.0 * calls));
}

static void self(int calls, int rank) {
    long sent = 0, received = 0;
    double start = now_ns();
    for (int i = 0; i < calls; i++) {
        MPI_Request request;
        MPI_Isend(&sent, 1, MPI_LONG, rank, 0, MPI_COMM_WORLD, &request);
        MPI_Recv(&received, 1, MPI_LONG, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    printf("%.2f\n", (now_ns() - start) / (3.0 * calls));
}

int main(int argc, char **argv) {
    int rank;
    if (argc != 4) return 2;
    int rounds = atoi(argv[2]), calls = atoi(argv[3]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < rounds; round++) {
        if (!strcmp(argv[1], "send")) send(calls);
        if (!strcmp(argv[1], "ping")) ping(calls, rank);
        if (!strcmp(argv[1], "self")) self(calls, rank);
        if (!strcmp(argv[1], "jump")) jump(calls);
    }
    MPI_Finalize();
    return 0;
}
