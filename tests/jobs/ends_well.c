/* A program with MPI that ends well, and in which rank 2 makes the others wait: 60 ms of work instead of 20, ten times. Compiled
 * with OpenMP, two threads share the work, and the second one of rank 2 has nearly all of it. */
#include <mpi.h>
#include <time.h>

static volatile double sum;

__attribute__((no_instrument_function)) static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void work(int ms) {
    double until = now() + 1e-3 * ms;
    while (now() < until)
        for (int i = 0; i < 1000; i++) sum += i;
}

int main(int count, char **arguments) {
    int rank;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < 10; turn++) {
#ifdef _OPENMP
#pragma omp parallel for num_threads(2) schedule(static, 1)
        for (int part = 0; part < 2; part++) work(rank == 2 && part == 1 ? 60 : 20);
#else
        work(rank == 2 ? 60 : 20);
#endif
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
