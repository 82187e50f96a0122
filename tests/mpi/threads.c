/* Threads that exchange messages concurrently, with a separate tag for each and with one tag for all. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, STEPS = 100 };

static int rank, size, sums[THREADS], shared[THREADS];

static void *work(void *argument) {
    int thread = (int)(long)argument, next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int step = 0; step < STEPS; step++) {
        int value = rank * 1000 + step, got = 0, same = 0;
        MPI_Request request;
        MPI_Isend(&value, 1, MPI_INT, next, thread, MPI_COMM_WORLD, &request);
        MPI_Recv(&got, 1, MPI_INT, before, thread, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        sums[thread] += got;
        MPI_Sendrecv(&value, 1, MPI_INT, next, THREADS + thread, &same, 1, MPI_INT, before,
                     THREADS + thread, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Send(&value, 1, MPI_INT, next, 2 * THREADS, MPI_COMM_WORLD);
        if (thread % 2) {
            MPI_Message message;
            MPI_Mprobe(before, 2 * THREADS, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
            MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(&got, 1, MPI_INT, before, 2 * THREADS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        shared[thread] += got;
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided < MPI_THREAD_MULTIPLE) MPI_Abort(MPI_COMM_WORLD, 1);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    int of_all = 0;
    for (int i = 0; i < THREADS; i++) of_all += shared[i];
    printf("rank %d: %d %d %d\n", rank, sums[0], sums[THREADS - 1], of_all);
    MPI_Finalize();
    return 0;
}
