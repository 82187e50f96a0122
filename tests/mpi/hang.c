/* Rank 0 calls one function that waits for the other ranks, which never do their part. The argument is the function. Rank 0
 * reports that it is about to call it. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void wait_for(const char *function, MPI_Comm communicator) {
    int value = 0, other = 0;
    MPI_Request requests[2];
    if (!strcmp(function, "MPI_Recv")) {
        MPI_Recv(&value, 1, MPI_INT, 1, 11, communicator, MPI_STATUS_IGNORE);
    } else if (!strcmp(function, "MPI_Ssend")) {
        MPI_Ssend(&value, 1, MPI_INT, 1, 12, communicator);
    } else if (!strcmp(function, "MPI_Wait")) {
        MPI_Irecv(&value, 1, MPI_INT, 1, 13, communicator, &requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    } else if (!strcmp(function, "MPI_Waitall")) {
        MPI_Irecv(&value, 1, MPI_INT, 1, 14, communicator, &requests[0]);
        MPI_Irecv(&other, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, communicator, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else if (!strcmp(function, "MPI_Probe")) {
        MPI_Probe(1, 15, communicator, MPI_STATUS_IGNORE);
    } else if (!strcmp(function, "MPI_Barrier")) {
        MPI_Barrier(communicator);
    } else if (!strcmp(function, "MPI_Allreduce")) {
        MPI_Allreduce(&value, &other, 1, MPI_INT, MPI_SUM, communicator);
    } else {
        MPI_Win window;
        MPI_Win_create(&value, sizeof value, sizeof value, MPI_INFO_NULL, communicator, &window);
        MPI_Win_fence(0, window);
        MPI_Win_fence(0, window);
    }
}

int main(int argc, char **argv) {
    int rank;
    MPI_Comm communicator;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
    for (int turn = 0; turn < 3; turn++) MPI_Barrier(communicator);
    if (argc > 1 && !strcmp(argv[1], "MPI_Win_fence") && rank != 0) {
        int value = 0;
        MPI_Win window;
        MPI_Win_create(&value, sizeof value, sizeof value, MPI_INFO_NULL, communicator, &window);
        MPI_Win_fence(0, window);
        pause();
    }
    if (rank == 0) {
        printf("rank 0 waits\n");
        fflush(stdout);
        wait_for(argc > 1 ? argv[1] : "MPI_Recv", communicator);
    }
    pause();
    return 0;
}
