/* What a call costs: MPI_Send to nobody, as it is and behind two clock reads, and a ping-pong of 8 bytes.
 *
 * usage: mpi_path ROUNDS; prints for each round: ns per MPI_Send to MPI_PROC_NULL, ns for two clock reads, and
 * ns per call of the ping-pong (0 with one process). */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SENDS = 200000, PINGS = 20000 };

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

int main(int argc, char **argv) {
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 10;
    static volatile uint64_t stored[8];
    long word = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < rounds; round++) {
        double start = now_ns();
        for (int i = 0; i < SENDS; i++) MPI_Send(&word, 1, MPI_LONG, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
        double send = (now_ns() - start) / SENDS;
        start = now_ns();
        for (int i = 0; i < SENDS; i++) {
            stored[0] = ticks();
            stored[4] = ticks();
        }
        double floor = (now_ns() - start) / SENDS, ping = 0;
        if (size > 1) {
            MPI_Barrier(MPI_COMM_WORLD);
            start = now_ns();
            for (int i = 0; i < PINGS && rank < 2; i++) {
                if (rank == 0) {
                    MPI_Send(&word, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD);
                    MPI_Recv(&word, 1, MPI_LONG, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                } else {
                    MPI_Recv(&word, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    MPI_Send(&word, 1, MPI_LONG, 0, 0, MPI_COMM_WORLD);
                }
            }
            ping = (now_ns() - start) / (2 * PINGS);
        }
        if (rank == 0) printf("%.2f %.2f %.2f\n", send, floor, ping);
    }
    MPI_Finalize();
    return 0;
}
