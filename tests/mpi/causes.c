/* Programs in which one cause makes ranks wait. The argument names it; each has STEPS instances of LATE milliseconds.
 * Functions are recorded with -finstrument-functions. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STEPS 20
#define LATE 20

static int rank, ranks;

#ifdef BUSY
/* For samples, which show what uses the processor. */
static volatile double sum;

static void rest(int ms) {
    struct timespec begun, time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    do {
        for (int i = 1; i < 20000; i++) sum += 1.0 / i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    } while ((time.tv_sec - begun.tv_sec) * 1000000000L + time.tv_nsec - begun.tv_nsec < ms * 1000000L);
}
#else
__attribute__((no_instrument_function)) static void rest(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}
#endif

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

/* Messages that no library sends before they are received. */
#define LARGE 100000
static double out[2][LARGE], in[2][LARGE];

/* Rank 1 works longer before each exchange: rank 0 waits until it receives, rank 2 until it sends, and rank 3 for rank 2. */
void ring(void) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    solve();
    if (rank == 1) assemble();
    MPI_Sendrecv(out[0], LARGE, MPI_DOUBLE, next, 1, in[0], LARGE, MPI_DOUBLE, before, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

/* Two by two ranks exchange their edges; rank 2 begins late. */
void halo(void) {
    MPI_Request requests[4];
    solve();
    if (rank == 2) assemble();
    for (int side = 0; side < 2; side++) {
        int peer = rank ^ (1 << side);
        MPI_Irecv(in[side], LARGE, MPI_DOUBLE, peer, side, MPI_COMM_WORLD, &requests[side]);
        MPI_Isend(out[side], LARGE, MPI_DOUBLE, peer, side, MPI_COMM_WORLD, &requests[2 + side]);
    }
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
}

/* Rank 0 sends work to all others and waits for each; rank 2 needs longer. */
void workers(void) {
    if (rank == 0) {
        for (int worker = 1; worker < ranks; worker++) send_to(worker);
        for (int worker = 1; worker < ranks; worker++) receive_from(worker);
    } else {
        receive_from(0);
        solve();
        if (rank == 2) assemble();
        send_to(0);
    }
}

/* Sums go to rank 0 over a tree, and back; rank 3, a leaf, begins late. */
void tree(void) {
    solve();
    if (rank == 3) assemble();
    if (rank % 2 == 1) {
        send_to(rank - 1);
        receive_from(rank - 1);
    } else if (rank == 2) {
        receive_from(3);
        send_to(0);
        receive_from(0);
        send_to(3);
    } else {
        receive_from(1);
        receive_from(2);
        send_to(1);
        send_to(2);
    }
}

/* Rank 1 reaches each fence of a window late. */
void one_sided(void) {
    static MPI_Win window;
    static int value;
    if (window == MPI_WIN_NULL || window == 0) {
        MPI_Win_create(&value, sizeof value, sizeof value, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    }
    solve();
    if (rank == 1) assemble();
    MPI_Win_fence(0, window);
    if (rank == 0) MPI_Put(&rank, 1, MPI_INT, 1, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
}

/* Odd ranks sum among themselves, where rank 3 is late, and even ones as well. */
void two_communicators(void) {
    static MPI_Comm half;
    static int is_made;
    double sum = rank, all;
    if (!is_made) {
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
        is_made = 1;
    }
    solve();
    if (rank == 3) assemble();
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, half);
}

/* Equal extra work in two functions that call the same one. */
void smooth(void) { assemble(); }
void relax(void) { assemble(); }
void callers(void) {
    solve();
    if (rank == 1) smooth();
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 2) relax();
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All ranks have the same work. */
void nothing(void) {
    double sum = rank, all;
    solve();
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void *work_beside(void *unused) {
    solve();
    if (rank == 2) assemble();
    return unused;
}

/* Two threads share the work of each rank; the second one of rank 2 has more. */
void hybrid(void) {
    pthread_t second;
    pthread_create(&second, NULL, work_beside, NULL);
    solve();
    pthread_join(second, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 asks again and again whether the late message of rank 1 is there. */
void polling(void) {
    MPI_Request request;
    int is_there = 0, value;
    if (rank == 0) {
        MPI_Irecv(&value, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, &request);
        while (!is_there) {
            MPI_Test(&request, &is_there, MPI_STATUS_IGNORE);
            rest(1);
        }
    } else if (rank == 1) {
        assemble();
        send_to(0);
    }
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*step)(void);
    } causes[] = {
        {"late_sender", late_sender}, {"late_broadcast", late_broadcast}, {"imbalance", imbalance},
        {"pipeline", pipeline},       {"wrong_order", wrong_order},       {"overload", overload},
        {"ring", ring},               {"halo", halo},                     {"workers", workers},
        {"tree", tree},               {"one_sided", one_sided},           {"two_communicators", two_communicators},
        {"callers", callers},         {"hybrid", hybrid},                 {"nothing", nothing},
        {"polling", polling},
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
