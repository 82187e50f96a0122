/* In ten turns, one thread waits for a receive and another one cancels it; then a message is exchanged under the same tag. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static MPI_Request request;
static int cancelled;

static void *wait_for_it(void *how) {
    int index, done[1], flag = 0;
    MPI_Status status;
    switch (*(int *)how % 4) {
    case 0: MPI_Wait(&request, &status); break;
    case 1: MPI_Waitall(1, &request, &status); break;
    case 2: MPI_Waitany(1, &request, &index, &status); break;
    default: MPI_Waitsome(1, &request, &index, done, &status);
    }
    MPI_Test_cancelled(&status, &flag);
    cancelled += flag;
    return 0;
}

int main(int count, char **arguments) {
    int level, rank, value = 0;
    MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int turn = 0; turn < 10; turn++) {
        pthread_t thread;
        MPI_Irecv(&value, 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD, &request);
        pthread_create(&thread, 0, wait_for_it, &turn);
        usleep(20000);
        MPI_Cancel(&request);
        pthread_join(thread, 0);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Sendrecv(&turn, 1, MPI_INT, 1 - rank, 7, &value, 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    printf("%d cancelled\n", cancelled);
    MPI_Finalize();
    return 0;
}
