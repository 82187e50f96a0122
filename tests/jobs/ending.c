/* A program with MPI that ends badly: `limit` computes in `hot` until it is killed, `hang` has a rank that never enters a
 * barrier, `crash` has one that dies by SIGSEGV. Each rank keeps in the file `truth-RANK` what the recording must agree
 * with, in seconds of CLOCK_MONOTONIC: its start, when it entered the function that it ends in, and when it was last
 * alive in there. */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define QUIET __attribute__((no_instrument_function))

static volatile double *truth;
static volatile double sum;
enum { START, ENTERED, ALIVE, SLOTS };

QUIET static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

QUIET static void open_truth(int rank) {
    char name[64];
    snprintf(name, sizeof name, "truth-%d", rank);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, SLOTS * sizeof(double))) _exit(9);
    truth = mmap(0, SLOTS * sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (truth == MAP_FAILED) _exit(9);
    truth[START] = now();
}

QUIET static void compute(double until) {
    while ((truth[ALIVE] = now()) < until)
        for (int i = 0; i < 1000; i++) sum += i;
}

void prepare(void) { compute(now() + 0.3); }

void hot(void) {
    truth[ENTERED] = now();
    compute(1e300);
}

void forgets(void) {
    truth[ENTERED] = now();
    compute(1e300);
}

void crashing(void) {
    truth[ENTERED] = now();
    compute(now() + 1);
    raise(SIGSEGV);
}

void waits(void) {
    truth[ENTERED] = now();
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int count, char **arguments) {
    int rank;
    const char *how = count > 1 ? arguments[1] : "limit";
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    open_truth(rank);
    prepare();
    MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(how, "limit")) {
        /* The grace after SIGTERM does not help this one. */
        if (rank == 1) signal(SIGTERM, SIG_IGN);
        hot();
    }
    if (rank != 1) waits();
    if (!strcmp(how, "hang")) forgets();
    crashing();
    return 0;
}
