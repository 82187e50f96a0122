/* A queue of unexpected messages, with the library of mock.c. Prints its statistics: number of messages, largest
 * length, and total, smallest and largest time in the queue, ns. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

long long mock_raise(int event, int rank, int tag);

int main(int argc, char **argv) {
    enum { ROUNDS = 10, LENGTH = 5 };
    const char *mock = getenv("MOCK");
    if (mock && strstr(mock, "-again")) { /* sessions, one after the other, each with one message that waits */
        for (int turn = 0; turn < 3; turn++) {
            MPI_Session session;
            MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
            mock_raise(0, 1, turn);
            mock_raise(1, 1, turn);
            MPI_Session_finalize(&session);
        }
        printf("3\n");
        return 0;
    }
    int size;
    long long total = 0, least = 1LL << 62, most = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < ROUNDS; round++) {
        long long since[LENGTH];
        for (int i = 0; i < LENGTH; i++) {
            mock_raise(3, 1, i);
            since[i] = mock_raise(0, 1, i);
            mock_raise(4, 1, i);
            usleep(2000);
        }
        for (int i = LENGTH - 1; i >= 0; i--) {
            long long time = mock_raise(1, 1, i) - since[i];
            total += time;
            if (time < least) least = time;
            if (time > most) most = time;
        }
        mock_raise(5, 1, 0);
        usleep(30000);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
    }
    for (int round = 0; round < ROUNDS && getenv("MOCK") && !strcmp(getenv("MOCK"), "bound"); round++) {
        MPI_Comm copy;
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        mock_raise(5, 0, round);
        MPI_Comm_free(&copy);
    }
    printf("%d %d %lld %lld %lld\n", ROUNDS * LENGTH, LENGTH, total, least, most);
    MPI_Finalize();
    return 0;
}
