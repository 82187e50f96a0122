/* Programs in which one cause makes ranks wait. The argument names it; each has STEPS instances of LATE milliseconds.
 * Functions are recorded with -finstrument-functions. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEPS 20
#define LATE 20

static int rank, ranks;

__attribute__((no_instrument_function)) static void rest(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* The extra work of one rank. */
void assemble(void) { rest(LATE); }

/* The work of all ranks. */
void solve(void) { rest(5); }

static void send_to(int peer) { MPI_Send(&rank, 1, MPI_INT, peer, 7, MPI_COMM_WORLD); }

static void receive_from(int peer) {
    int value;
    MPI_Recv(&value, 1, MPI_INT, peer, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Rank 2 sends late to rank 1, which has nothing else to do. */
void late_sender(void) {
    solve();
    if (rank == 2) {
        assemble();
        send_to(1);
    } else if (rank == 1) {
        receive_from(2);
    }
}

/* The root, rank 3, begins each broadcast late. */
void late_broadcast(void) {
    int value = rank;
    solve();
    if (rank == 3) assemble();
    MPI_Bcast(&value, 1, MPI_INT, 3, MPI_COMM_WORLD);
}

/* Rank 1 has more to do before each barrier. */
void imbalance(void) {
    solve();
    if (rank == 1) assemble();
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Each rank works only when the rank before it has worked. */
void pipeline(void) {
    if (rank > 0) receive_from(rank - 1);
    assemble();
    if (rank + 1 < ranks) send_to(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 receives from rank 1 first, which sends late, and only then from rank 2, whose message it could work on. All
 * have the same work. */
void wrong_order(void) {
    if (rank == 0) {
        receive_from(1);
        receive_from(2);
        assemble();
    } else {
        if (rank == 2) send_to(0);
        assemble();
        if (rank == 1) send_to(0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 is overloaded: rank 1 waits for it, and rank 3, which never talks to rank 0, for rank 1. */
void overload(void) {
    solve();
    if (rank == 0) {
        assemble();
        send_to(1);
    } else if (rank == 1) {
        receive_from(0);
        send_to(3);
        receive_from(3);
    } else if (rank == 3) {
        receive_from(1);
        send_to(1);
    }
    if (rank == 0) receive_from(1);
    if (rank == 1) send_to(0);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*step)(void);
    } causes[] = {
        {"late_sender", late_sender}, {"late_broadcast", late_broadcast}, {"imbalance", imbalance},
        {"pipeline", pipeline},       {"wrong_order", wrong_order},       {"overload", overload},
    };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    for (size_t cause = 0; cause < sizeof causes / sizeof *causes; cause++) {
        if (argc < 2 || strcmp(argv[1], causes[cause].name) != 0) continue;
        for (int step = 0; step < STEPS; step++) causes[cause].step();
    }
    MPI_Finalize();
    return 0;
}
