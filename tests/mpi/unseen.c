/* Rank 1 receives what rank 0 sends late, by a function that it finds with dlsym; all meet in PMPI_Barrier, as parts of programs that
 * are linked with a tool do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

typedef int Receive(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);

int main(int argc, char **argv) {
    int rank, value = 0;
    Dl_info library;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    dladdr(dlsym(RTLD_NEXT, "PMPI_Recv"), &library);
    Receive *receive = (Receive *)dlsym(dlopen(library.dli_fname, RTLD_NOW), "MPI_Recv");
    for (int step = 0; step < 10; step++) {
        if (rank == 0) {
            usleep(10000);
            MPI_Send(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
        } else if (rank == 1) {
            receive(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        PMPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
