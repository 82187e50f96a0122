/* Makes the library of ompi6.c raise each of its events. Prints the handle of the communicator that is named, and that of the window. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

void ompi6_release(void);
void ompi6_fail(MPI_Comm comm, int code);

int main(int argc, char **argv) {
    MPI_Comm copy, other;
    MPI_Win window;
    char memory[64];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Comm_set_name(copy, "a copy");
    MPI_Comm_set_name(other, "another");
    MPI_Comm_set_name(copy, "the copy");
    printf("%llu ", (unsigned long long)copy);
    MPI_Comm_free(&other);
    MPI_Win_create(memory, sizeof memory, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    printf("%llu\n", (unsigned long long)window);
    MPI_Win_free(&window);
    ompi6_fail(MPI_COMM_WORLD, 15);
    ompi6_release();
    ompi6_release();
    usleep(50000); /* the recorder reads the source's time now and then */
    for (int turn = 0; turn < 100; turn++) MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_free(&copy);
    MPI_Finalize();
    return 0;
}
