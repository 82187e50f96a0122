/* Makes and frees thousands of communicators, also while requests on them are pending and while another thread is in a call on
   one. With an argument, two threads do so concurrently. The memory of the process may not grow with them: only their definitions
   stay, of at most 400 bytes each. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALL = 1200, THREADS = 2, WAITS = 3 };

static int rank, size, wrong;

/* Without memory that processes share, of which an MPI library touches more and more. */
static long resident_kib(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "RssAnon:", 8)) kib = atol(line + 8);
    fclose(status);
    return kib;
}

/* Of the three requests on a communicator, some are complete when it is freed. */
static void make_and_free(MPI_Comm parent, int step) {
    int next = (rank + 1) % size, before = (rank + size - 1) % size, got = -1, repeated = -1;
    MPI_Comm comm;
    MPI_Request requests[WAITS];
    if (step % 2) MPI_Comm_dup(parent, &comm);
    else MPI_Comm_split(parent, 0, rank, &comm);
    MPI_Irecv(&got, 1, MPI_INT, before, 3, comm, &requests[0]);
    MPI_Recv_init(&repeated, 1, MPI_INT, step % 5 ? before : MPI_ANY_SOURCE, 4, comm, &requests[1]);
    MPI_Start(&requests[1]);
    MPI_Isend(&step, 1, MPI_INT, next, 4, comm, &requests[2]);
    MPI_Send(&step, 1, MPI_INT, next, 3, comm);
    if (step % 3) {
        MPI_Waitall(WAITS, requests, MPI_STATUSES_IGNORE);
        MPI_Comm_free(&comm);
    } else {
        MPI_Comm_free(&comm);
        for (int number = 0; number < WAITS; number++) {
            int done = 0;
            while (step % 2 && !done) MPI_Test(&requests[number], &done, MPI_STATUS_IGNORE);
            if (!done) MPI_Wait(&requests[number], MPI_STATUS_IGNORE);
        }
    }
    MPI_Request_free(&requests[1]);
    wrong += got != step || repeated != step;
}

static void *make_many(void *argument) {
    MPI_Comm *parent = argument;
    for (int step = 0; step < ALL / 2 / THREADS; step++) make_and_free(*parent, step);
    return NULL;
}

/* Waits on a communicator that the first thread frees meanwhile. */
static void *wait_long(void *argument) {
    int got = 0;
    MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, 7, *(MPI_Comm *)argument, MPI_STATUS_IGNORE);
    wrong += got != 7;
    return NULL;
}

static void make_half(int is_multiple, MPI_Comm *parents) {
    pthread_t threads[THREADS];
    if (!is_multiple) {
        for (int step = 0; step < ALL / 2; step++) make_and_free(MPI_COMM_WORLD, step);
        return;
    }
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, make_many, &parents[n]);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
}

int main(int argc, char **argv) {
    int level, is_multiple = argc > 1, seven = 7;
    MPI_Init_thread(&argc, &argv, is_multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm parents[THREADS], awaited, used;
    pthread_t waiting;
    for (int n = 0; n < THREADS; n++) MPI_Comm_dup(MPI_COMM_WORLD, &parents[n]);
    MPI_Comm_dup(MPI_COMM_WORLD, &awaited);
    used = awaited;
    if (is_multiple) {
        pthread_create(&waiting, NULL, wait_long, &used);
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    make_half(is_multiple, parents);
    long half = resident_kib();
    make_half(is_multiple, parents);
    long grown = resident_kib() - half, most = 1024 + ALL / 2 * 400 / 1024;
    if (is_multiple) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Request request;
        MPI_Isend(&seven, 1, MPI_INT, (rank + 1) % size, 7, awaited, &request);
        MPI_Comm_free(&awaited);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        pthread_join(waiting, NULL);
    }
    if (grown > most) printf("rank %d: memory grew by %ld KiB, more than %ld\n", rank, grown, most);
    printf("rank %d: %d wrong\n", rank, wrong);
    MPI_Finalize();
    return 0;
}
