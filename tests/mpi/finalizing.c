/* A program whose last messages are sent by a callback that MPI_Finalize calls, on a communicator that it makes. */
#include <mpi.h>
#include <stdio.h>

static int finalizing(MPI_Comm self, int key, void *value, void *extra) {
    int rank, size, in, sum = 0;
    MPI_Comm part;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &part);
    MPI_Comm_rank(part, &rank);
    for (int step = 0; step < 10; step++) {
        MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 8, &in, 1, MPI_INT, (rank + size - 1) % size, 8, part, MPI_STATUS_IGNORE);
        sum += in;
    }
    MPI_Barrier(part);
    MPI_Comm_free(&part);
    printf("sum %d\n", sum);
    return MPI_SUCCESS;
}

int main(int argc, char **argv) {
    int key;
    MPI_Init(&argc, &argv);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, finalizing, &key, 0);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
    MPI_Finalize();
    return 0;
}
