/* Heat in a plate, on any number of MPI processes: each has a slab of rows and exchanges its outermost ones with its
 * neighbours. A burner heats a part of the plate; its cells cost much more than the others.
 *
 * usage: heat [STEPS [balanced]]
 * With `balanced`, rows are shared out by what they cost, otherwise by their number. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 480, COLUMNS = 480, BURNER_FIRST = 260, BURNER_ROWS = 80, BURNER_COST = 60 };

static int rank, size, first, rows;
static double *now, *next;

static double *row_of(double *plate, int row) { return plate + (size_t)(row + 1) * COLUMNS; }

static int is_burner(int row) { return row >= BURNER_FIRST && row < BURNER_FIRST + BURNER_ROWS; }

static int cost_of(int row, int balanced) { return balanced && is_burner(row) ? BURNER_COST : 1; }

/* Chooses the rows of this process. */
static void share_out(int balanced) {
    long total = 0, before = 0;
    int end = 0;
    for (int row = 0; row < ROWS; row++) total += cost_of(row, balanced);
    for (int row = 0; row < ROWS; row++) {
        int owner = (int)(before * size / total);
        if (owner < rank) first = row + 1;
        if (owner <= rank) end = row + 1;
        before += cost_of(row, balanced);
    }
    rows = end - first;
}

static void exchange_rows(void) {
    int above = rank ? rank - 1 : MPI_PROC_NULL, below = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(row_of(now, 0), COLUMNS, MPI_DOUBLE, above, 1, row_of(now, rows), COLUMNS, MPI_DOUBLE, below, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row_of(now, rows - 1), COLUMNS, MPI_DOUBLE, below, 2, row_of(now, -1), COLUMNS, MPI_DOUBLE, above, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Spreads the heat; returns the largest change. */
static double diffuse(void) {
    double largest = 0;
    for (int row = 0; row < rows; row++) {
        const double *up = row_of(now, row - 1), *here = row_of(now, row), *down = row_of(now, row + 1);
        double *to = row_of(next, row);
        for (int x = 1; x < COLUMNS - 1; x++) {
            to[x] = here[x] + 0.2 * (up[x] + down[x] + here[x - 1] + here[x + 1] - 4 * here[x]);
            largest = fmax(largest, fabs(to[x] - here[x]));
        }
    }
    return largest;
}

/* Burns in the cells of the burner: the hotter, the faster. */
static void burn(void) {
    for (int row = 0; row < rows; row++) {
        if (!is_burner(first + row)) continue;
        double *to = row_of(next, row);
        for (int x = 100; x < 380; x++)
            for (int part = 0; part < 60; part++) to[x] += 0.01 * exp(-1.0 / (0.5 + to[x]));
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int steps = argc > 1 ? atoi(argv[1]) : 50;
    share_out(argc > 2 && strcmp(argv[2], "balanced") == 0);
    now = calloc((size_t)(rows + 2) * COLUMNS, sizeof(double));
    next = calloc((size_t)(rows + 2) * COLUMNS, sizeof(double));
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), change = 0;
    for (int step = 0; step < steps; step++) {
        exchange_rows();
        double own = diffuse();
        burn();
        MPI_Allreduce(&own, &change, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        double *swap = now;
        now = next;
        next = swap;
    }
    if (rank == 0) printf("%d steps in %.3f s, last change %.6f\n", steps, MPI_Wtime() - start, change);
    MPI_Finalize();
    return 0;
}
