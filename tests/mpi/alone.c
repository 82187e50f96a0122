/* A single process that ends by a signal. The argument is "crash" or "kill". */
#include <mpi.h>
#include <signal.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    raise(argc > 1 && !strcmp(argv[1], "kill") ? SIGKILL : SIGSEGV);
    return 0;
}
