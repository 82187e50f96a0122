/* A program with MPI and OpenMP, in which one thread makes others wait:
 *
 *     hybrid imbalance      thread 1 of rank 2 has more work in a loop than the others of its team
 *     hybrid lock           thread 1 of rank 1 has a lock for long
 *     hybrid late_sender    thread 0 of rank 3 sends late, since it works before
 *
 * Work is sleeping, so that there need not be a processor for each thread. */
#include <mpi.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 8, SHORT_US = 2000, LONG_US = 22000 };

static omp_lock_t lock;

static void loop(int is_late) {
#pragma omp parallel for num_threads(2) schedule(dynamic, 1)
    for (int part = 0; part < 2; part++) /* imbalance */
        usleep(is_late && omp_get_thread_num() == 1 ? LONG_US : SHORT_US);
}

static void locked(int is_long) {
#pragma omp parallel num_threads(2)
    {
        int thread = omp_get_thread_num();
        if (thread == 0) usleep(SHORT_US);
        omp_set_lock(&lock); /* lock */
        usleep(is_long && thread == 1 ? LONG_US : 100);
        omp_unset_lock(&lock);
    }
}

int main(int argc, char **argv) {
    int rank, size, given, value = 0;
    const char *how = argc > 1 ? argv[1] : "";
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    omp_init_lock(&lock);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int step = 0; step < STEPS; step++) {
        loop(strcmp(how, "imbalance") == 0 && rank == 2);
        locked(strcmp(how, "lock") == 0 && rank == 1);
        if (strcmp(how, "late_sender") == 0 && rank == 3) usleep(LONG_US);
        if (rank == 3) MPI_Send(&value, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
        if (rank == 0) MPI_Recv(&value, 1, MPI_INT, 3, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    omp_destroy_lock(&lock);
    MPI_Finalize();
    if (rank == 0) printf("%d ranks\n", size);
    return 0;
}
