/* Rank 1 is late with one of its messages to rank 2: it sleeps before it sends. */
#include <mpi.h>
#include <time.h>

static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

int main(int argc, char **argv) {
    int rank, value = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int step = 0; step < 8; step++) {
        if (rank == 1) {
            sleep_ms(step == 5 ? 300 : 5);
            MPI_Send(&value, 1, MPI_INT, 2, 99, MPI_COMM_WORLD);
        } else if (rank == 2) {
            MPI_Recv(&value, 1, MPI_INT, 1, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            sleep_ms(2);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
