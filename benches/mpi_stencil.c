/* A conjugate-gradient solver on a grid, as HPCG is one: a halo exchange and two reductions each step, over processes
 * that have slabs of it. Prints the seconds that the solver took, and its last residual.
 *
 * usage: mpi_stencil EDGE STEPS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size, edge;

static double dot(const double *a, const double *b, long count) {
    double sum = 0, all;
    for (long i = 0; i < count; i++) sum += a[i] * b[i];
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* q = A p for the seven-point operator; p has a plane more on each side. */
static void apply(double *p, double *q) {
    long plane = (long)edge * edge;
    int below = rank ? rank - 1 : MPI_PROC_NULL, above = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[4];
    MPI_Irecv(p - plane, plane, MPI_DOUBLE, below, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(p + plane * edge, plane, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(p, plane, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(p + plane * (edge - 1), plane, MPI_DOUBLE, above, 0, MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    for (long z = 0; z < edge; z++)
        for (long y = 0; y < edge; y++)
            for (long x = 0; x < edge; x++) {
                double *c = p + z * plane + y * edge + x;
                double sum = 6.5 * *c - c[-plane] - c[plane];
                if (x) sum -= c[-1];
                if (x < edge - 1) sum -= c[1];
                if (y) sum -= c[-edge];
                if (y < edge - 1) sum -= c[edge];
                q[z * plane + y * edge + x] = sum;
            }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    edge = argc > 1 ? atoi(argv[1]) : 32;
    int steps = argc > 2 ? atoi(argv[2]) : 500;
    long plane = (long)edge * edge, count = plane * edge;
    double *x = calloc(count, 8), *r = calloc(count, 8), *q = calloc(count, 8);
    double *p = (double *)calloc(count + 2 * plane, 8) + plane;
    for (long i = 0; i < count; i++) p[i] = r[i] = 1 + (i * 7919 + rank) % 13;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime(), rr = dot(r, r, count);
    for (int step = 0; step < steps && rr > 1e-200; step++) {
        apply(p, q);
        double alpha = rr / dot(p, q, count);
        for (long i = 0; i < count; i++) {
            x[i] += alpha * p[i];
            r[i] -= alpha * q[i];
        }
        double next = dot(r, r, count), beta = next / rr;
        rr = next;
        for (long i = 0; i < count; i++) p[i] = r[i] + beta * p[i];
    }
    double seconds = MPI_Wtime() - start, slowest;
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%.6f %.3e\n", slowest, rr);
    MPI_Finalize();
    return 0;
}
