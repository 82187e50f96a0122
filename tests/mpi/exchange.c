/* Messages of a stencil, of a master with its workers, and operations of sub-communicators. In a channel, every message has a
 * different size, and in a communicator every reduction has: so sizes show which events belong together. The arguments are the
 * number of rounds, and the number of reductions of all processes after them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16384, RESULT = 5, JOB = 6, END = 7 };

static int out[MOST], in[2][MOST];

static void stencil(int rounds, MPI_Comm ring) {
    int rank, size;
    MPI_Comm_rank(ring, &rank);
    MPI_Comm_size(ring, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int round = 1; round <= rounds; round++) {
        if (round % 3) {
            MPI_Request requests[4];
            MPI_Irecv(in[0], MOST, MPI_INT, left, 1, ring, &requests[0]);
            MPI_Irecv(in[1], MOST, MPI_INT, right, 2, ring, &requests[1]);
            MPI_Isend(out, round, MPI_INT, right, 1, ring, &requests[2]);
            MPI_Isend(out, round, MPI_INT, left, 2, ring, &requests[3]);
            MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        } else {
            MPI_Sendrecv(out, round, MPI_INT, right, 1, in[0], MOST, MPI_INT, left, 1, ring, MPI_STATUS_IGNORE);
            MPI_Sendrecv(out, round, MPI_INT, left, 2, in[1], MOST, MPI_INT, right, 2, ring, MPI_STATUS_IGNORE);
        }
    }
}

static void farm(int rounds, MPI_Comm all) {
    int rank, size;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    if (rank == 0) {
        int *jobs = calloc(size, sizeof *jobs);
        for (int ended = 0; ended < size - 1;) {
            MPI_Status status;
            MPI_Recv(in[0], MOST, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, all, &status);
            int worker = status.MPI_SOURCE, job = ++jobs[worker];
            MPI_Send(out, job, MPI_INT, worker, job > rounds ? END : JOB, all);
            ended += job > rounds;
        }
        free(jobs);
        return;
    }
    for (int result = 1;; result++) {
        MPI_Status status;
        MPI_Send(out, result, MPI_INT, 0, RESULT, all);
        MPI_Recv(in[0], MOST, MPI_INT, 0, MPI_ANY_TAG, all, &status);
        if (status.MPI_TAG == END) break;
    }
}

static void reduce(int rounds, MPI_Comm part) {
    for (int round = 1; round <= rounds; round++) {
        MPI_Allreduce(out, in[0], round % (MOST - 1) + 1, MPI_INT, MPI_MAX, part);
        if (round % 4 == 0) MPI_Barrier(part);
        if (round % 5 == 0) MPI_Bcast(out, 1, MPI_INT, 0, part);
    }
}

int main(int argc, char **argv) {
    int rank, rounds = argc > 1 ? atoi(argv[1]) : 100, reductions = argc > 2 ? atoi(argv[2]) : 0;
    MPI_Comm ring, part;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &ring);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
    stencil(rounds, ring);
    farm(rounds, MPI_COMM_WORLD);
    reduce(rounds, part);
    reduce(reductions, MPI_COMM_WORLD);
    printf("rank %d: done\n", rank);
    MPI_Finalize();
    return 0;
}
