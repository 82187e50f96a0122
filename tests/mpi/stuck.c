/* Ways of a job of at least four processes to hang, to go on slowly, or to end badly. The first argument is the way. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORLD MPI_COMM_WORLD

static int rank, size, number;
static volatile double sink;
static char large[4 << 20];

static int is(const char *way, const char *other) { return !strcmp(way, other); }

static void loop(void) {
    for (;;) sink += 1;
}

static void nap(void) {
    for (;;) sleep(100);
}

static void work(void) {
    for (long turn = 0; turn < 20000000; turn++) sink += 1;
}

static void receive(int from, int tag) {
    MPI_Recv(&number, 1, MPI_INT, from, tag, WORLD, MPI_STATUS_IGNORE);
}

static void *receive_in_thread(void *unused) {
    int other;
    (void)unused;
    MPI_Recv(&other, 1, MPI_INT, 1, 99, WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

static void barriers(MPI_Comm communicator, int count) {
    for (int turn = 0; turn < count; turn++) MPI_Barrier(communicator);
}

static void reduce(void) { MPI_Allreduce(&rank, &number, 1, MPI_INT, MPI_SUM, WORLD); }

/* Rank 2 does not come to the barrier. */
static void not_to_barrier(const char *way) {
    if (rank == 2) {
        if (is(way, "loop")) loop();
        if (is(way, "sleep")) nap();
        // The others wait by then, also on a busy machine: a launcher ends them soon after this rank.
        usleep(300000);
        if (is(way, "return")) exit(0);
        if (is(way, "signal")) raise(SIGSEGV);
        if (is(way, "abort")) MPI_Abort(WORLD, 5);
    }
    MPI_Barrier(WORLD);
}

static void collectives(const char *way) {
    MPI_Comm other;
    if (is(way, "order")) {
        if (rank == 2) reduce();
        MPI_Barrier(WORLD);
        if (rank != 2) reduce();
    } else if (is(way, "root")) {
        MPI_Bcast(large, sizeof large, MPI_CHAR, rank == 2 ? 2 : 0, WORLD);
    } else {
        MPI_Comm_dup(WORLD, &other);
        if (is(way, "communicator")) {
            MPI_Barrier(rank == 2 ? other : WORLD);
        } else {
            MPI_Barrier(rank < 2 ? other : WORLD);
            MPI_Barrier(rank < 2 ? WORLD : other);
        }
    }
    MPI_Barrier(WORLD);
}

static void messages(const char *way) {
    MPI_Request request;
    int is_there = 0;
    if (is(way, "sends")) {
        MPI_Send(large, sizeof large, MPI_CHAR, (rank + 1) % size, 7, WORLD);
        MPI_Recv(large, sizeof large, MPI_CHAR, (rank + size - 1) % size, 7, WORLD, MPI_STATUS_IGNORE);
    } else if (is(way, "cycle")) {
        if (rank == 1) receive(2, 4);
        if (rank == 2) receive(1, 4);
    } else if (is(way, "tag")) {
        if (rank == 0) MPI_Send(&number, 1, MPI_INT, 1, 4, WORLD);
        if (rank == 1) receive(0, 5);
    } else if (is(way, "wait") && rank == 3) {
        MPI_Irecv(&number, 1, MPI_INT, 1, 11, WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else if (is(way, "probe") && rank == 1) {
        MPI_Probe(3, MPI_ANY_TAG, WORLD, MPI_STATUS_IGNORE);
    } else if (is(way, "poll") && rank == 2) {
        MPI_Irecv(&number, 1, MPI_INT, 1, 3, WORLD, &request);
        while (!is_there) {
            MPI_Test(&request, &is_there, MPI_STATUS_IGNORE);
            usleep(1000);
        }
    }
    MPI_Barrier(WORLD);
}

static void windows_and_files(const char *way) {
    MPI_Win window;
    MPI_File file;
    if (is(way, "fence")) {
        MPI_Win_create(large, 1024, 1, MPI_INFO_NULL, WORLD, &window);
        MPI_Win_fence(0, window);
        if (rank != 2) MPI_Win_fence(0, window);
    } else {
        MPI_File_open(WORLD, "stuck.data", MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                      MPI_INFO_NULL, &file);
        if (rank != 2) MPI_File_write_all(file, &number, 1, MPI_INT, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(WORLD);
}

/* The ranks with an odd number hang; the others go on. */
static void half(void) {
    MPI_Comm other;
    MPI_Comm_split(WORLD, rank % 2, rank, &other);
    if (rank == 3) nap();
    for (;;) {
        MPI_Barrier(other);
        usleep(1000);
    }
}

static void threads(void) {
    pthread_t thread;
    if (rank == 0) pthread_create(&thread, NULL, receive_in_thread, NULL);
    barriers(WORLD, 10);
    if (rank == 0) pthread_join(thread, NULL);
    MPI_Barrier(WORLD);
}

static void spawn(char *program) {
    MPI_Comm parent, other;
    char *arguments[] = {"child", NULL};
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL)
        MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, WORLD, &other, MPI_ERRCODES_IGNORE);
}

int main(int argc, char **argv) {
    const char *way = argc > 1 ? argv[1] : "loop";
    int level;
    if (is(way, "child")) {
        const char *own = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("PMIX_RANK");
        if (own && is(own, "1")) nap();
    }
    MPI_Init_thread(&argc, &argv, is(way, "thread") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(WORLD, &rank);
    MPI_Comm_size(WORLD, &size);
    for (int turn = 0; turn < 5; turn++) reduce();
    if (is(way, "loop") || is(way, "sleep") || is(way, "return") || is(way, "signal") || is(way, "abort"))
        not_to_barrier(way);
    else if (is(way, "order") || is(way, "root") || is(way, "communicator") || is(way, "two"))
        collectives(way);
    else if (is(way, "fence") || is(way, "file"))
        windows_and_files(way);
    else if (is(way, "half"))
        half();
    else if (is(way, "thread"))
        threads();
    else if (is(way, "spawn"))
        spawn(argv[0]);
    else if (is(way, "finalize") && rank == 2)
        nap();
    else if (is(way, "slow") || (is(way, "compute") && rank == 2))
        for (int turn = 0; turn < 400; turn++) {
            work();
            if (is(way, "slow")) MPI_Barrier(WORLD);
        }
    else if (!is(way, "finalize") && !is(way, "compute") && !is(way, "child") && !is(way, "well"))
        messages(way);
    if (is(way, "compute")) MPI_Barrier(WORLD);
    MPI_Finalize();
    return 0;
}
