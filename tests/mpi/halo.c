/* A halo exchange that completes its requests in every possible way. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 64, FORMS = 8 };

static int rank, size;

/* Completes all requests with the given one of the `FORMS` ways. */
static void complete(int form, int count, MPI_Request *requests) {
    MPI_Status statuses[8];
    int indices[8], done, flag;
    switch (form) {
    case 0: MPI_Waitall(count, requests, MPI_STATUSES_IGNORE); break;
    case 1: MPI_Waitall(count, requests, statuses); break;
    case 2:
        for (int i = 0; i < count; i++) MPI_Wait(&requests[i], i % 2 ? MPI_STATUS_IGNORE : &statuses[i]);
        break;
    case 3:
        for (int left = count; left > 0; left--) MPI_Waitany(count, requests, indices, MPI_STATUS_IGNORE);
        MPI_Waitany(count, requests, indices, statuses); /* nothing is left */
        break;
    case 4:
        for (int left = count; left > 0; left -= done)
            MPI_Waitsome(count, requests, &done, indices, left % 2 ? MPI_STATUSES_IGNORE : statuses);
        break;
    case 5:
        for (int i = 0; i < count; i++)
            do MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE); while (!flag);
        break;
    case 6:
        do MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE); while (!flag);
        break;
    default:
        for (int left = count; left > 0;) {
            if (left % 2) {
                MPI_Testany(count, requests, indices, &flag, statuses);
                left -= flag;
            } else {
                MPI_Testsome(count, requests, &done, indices, statuses);
                left -= done;
            }
        }
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm world, even;
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    MPI_Comm_set_name(world, "halo");
    int left = rank ? rank - 1 : MPI_PROC_NULL, right = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    double out[2][WIDTH], in[2][WIDTH] = {{0}}, sum = 0;
    int steps = argc > 1 ? atoi(argv[1]) : 40;
    for (int step = 0; step < steps; step++) {
        int width = 1 + step % WIDTH, tag = step % 3;
        for (int i = 0; i < WIDTH; i++) out[0][i] = out[1][i] = rank + step + i;
        MPI_Request requests[5];
        MPI_Irecv(in[0], WIDTH, MPI_DOUBLE, left, step % 4 ? tag : MPI_ANY_TAG, world, &requests[0]);
        MPI_Irecv(in[1], WIDTH, MPI_DOUBLE, right, tag, world, &requests[1]);
        MPI_Isend(out[0], width, MPI_DOUBLE, left, tag, world, &requests[2]);
        if (step % 2) MPI_Isend(out[1], width, MPI_DOUBLE, right, tag, world, &requests[3]);
        else MPI_Issend(out[1], width, MPI_DOUBLE, right, tag, world, &requests[3]);
        requests[4] = MPI_REQUEST_NULL;
        complete(step % FORMS, 4, requests);
        sum += in[0][0] + in[1][width - 1];
    }
    /* Persistent requests, in a communicator of some processes, whose ranks are different there. */
    MPI_Comm_split(world, rank % 2, -rank, &even);
    int place, members;
    MPI_Comm_rank(even, &place);
    MPI_Comm_size(even, &members);
    int next = (place + 1) % members, before = (place + members - 1) % members, number = rank, got = -1;
    MPI_Request ring[2];
    MPI_Send_init(&number, 1, MPI_INT, next, 4, even, &ring[0]);
    MPI_Recv_init(&got, 1, MPI_INT, MPI_ANY_SOURCE, 4, even, &ring[1]);
    MPI_Waitall(2, ring, MPI_STATUSES_IGNORE); /* not started */
    for (int step = 0; step < 6; step++) {
        if (step % 2) MPI_Startall(2, ring);
        else {
            MPI_Start(&ring[1]);
            MPI_Start(&ring[0]);
        }
        complete(step, 2, ring);
        sum += got;
    }
    MPI_Request_free(&ring[0]);
    MPI_Request_free(&ring[1]);
    /* A receive that is cancelled, one after a probe, one after a matched probe. */
    MPI_Request lost;
    MPI_Status status;
    int flag;
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 99, even, &lost);
    MPI_Cancel(&lost);
    MPI_Wait(&lost, &status);
    MPI_Test_cancelled(&status, &flag);
    MPI_Request kept;
    MPI_Isend(&number, 1, MPI_INT, next, 5, even, &kept);
    MPI_Probe(before, 5, even, &status);
    MPI_Recv(&got, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, even, MPI_STATUS_IGNORE);
    MPI_Wait(&kept, MPI_STATUS_IGNORE);
    MPI_Message message;
    int two[2] = {rank, -rank};
    MPI_Isend(&two[0], 1, MPI_INT, next, 6, even, &kept);
    MPI_Request other;
    MPI_Isend(two, 2, MPI_INT, next, 6, even, &other);
    MPI_Mprobe(MPI_ANY_SOURCE, 6, even, &message, MPI_STATUS_IGNORE);
    int pair[2];
    MPI_Recv(pair, 2, MPI_INT, before, 6, even, MPI_STATUS_IGNORE); /* the second of the two */
    MPI_Mrecv(&got, 1, MPI_INT, &message, &status);                 /* the first */
    MPI_Wait(&kept, MPI_STATUS_IGNORE);
    MPI_Wait(&other, MPI_STATUS_IGNORE);
    MPI_Isend(&two[0], 1, MPI_INT, next, 7, even, &kept);
    do MPI_Improbe(before, 7, even, &flag, &message, &status); while (!flag);
    MPI_Imrecv(&got, 1, MPI_INT, &message, &other);
    MPI_Wait(&other, MPI_STATUS_IGNORE);
    MPI_Wait(&kept, MPI_STATUS_IGNORE);
    MPI_Sendrecv_replace(&number, 1, MPI_INT, next, 8, before, 8, even, MPI_STATUS_IGNORE);
    printf("rank %d: %.1f %d %d %d %d\n", rank, sum, got, pair[0], number, flag);
    MPI_Comm_free(&even);
    MPI_Comm_free(&world);
    MPI_Finalize();
    return 0;
}
