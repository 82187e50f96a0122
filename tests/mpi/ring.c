/* A ring: every process passes a number on, in blocking calls. The arguments are the number of steps, and how the last process
 * ends: 0, an exit code, "kill", "abort", "crash", "exit" (without MPI_Finalize) or "leave" (without anything). */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    const char *end = argc > 2 ? argv[2] : "0";
    long value = rank;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int step = 0; step < steps; step++) {
        long got[3];
        if (rank == 0) {
            MPI_Send(&value, 1, MPI_LONG, next, step % 5, MPI_COMM_WORLD);
            MPI_Recv(got, 3, MPI_LONG, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Status status;
            MPI_Recv(got, 3, MPI_LONG, before, step % 5, MPI_COMM_WORLD, &status);
            MPI_Ssend(&value, 1, MPI_LONG, next, step % 5, MPI_COMM_WORLD);
            if (status.MPI_SOURCE != before) printf("status\n");
        }
        value = got[0] + 1;
    }
    MPI_Send(&value, 1, MPI_LONG, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Sendrecv(&value, 1, MPI_LONG, next, 9, &value + 0, 0, MPI_LONG, MPI_PROC_NULL, 9, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    long last;
    MPI_Recv(&last, 1, MPI_LONG, before, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1) {
        if (!strcmp(end, "kill")) raise(SIGKILL);
        if (!strcmp(end, "abort")) MPI_Abort(MPI_COMM_WORLD, 7);
        if (!strcmp(end, "crash")) *(volatile int *)8 = 0;
        if (!strcmp(end, "exit")) exit(5);
        if (!strcmp(end, "leave")) _exit(5);
    }
    printf("rank %d: %ld %ld\n", rank, value, last);
    MPI_Finalize();
    return atoi(end);
}
