/* A program that spawns itself twice: parents and children pass numbers on in two separate rings; then parents and
 * children have a barrier together. */
#include <mpi.h>
#include <stdio.h>

static long ring(int steps) {
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long value = rank, got = 0;
    for (int step = 0; step < steps; step++) {
        MPI_Sendrecv(&value, 1, MPI_LONG, (rank + 1) % size, 3, &got, 1, MPI_LONG, (rank + size - 1) % size, 3,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        value = got + 1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return value;
}

int main(int argc, char **argv) {
    int rank;
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        ring(20);
        MPI_Barrier(parent);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    long value = ring(10);
    for (int n = 0; n < 2; n++) {
        MPI_Comm children;
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 3, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
        value += ring(10);
        MPI_Barrier(children);
        MPI_Comm_disconnect(&children);
    }
    printf("rank %d: %ld\n", rank, value);
    MPI_Finalize();
    return 0;
}
