/* Collective operations in which some processes contribute or receive nothing. One process in turn enters late: those that
 * need nothing of it may leave earlier. Prints only results that do not depend on the time.
 *
 * usage: mpirun -n N empty [MICROSECONDS] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 16 };

/* The arguments of each process. A 0 in `length` means an operation without any elements. */
struct parts {
    int rank, root, length;
    int own;           /* elements of this process */
    int by_rank[MOST]; /* elements of every process */
    int starts[MOST];
    int send[MOST], receive[MOST]; /* elements to and from every process */
};

static int in[MOST], out[MOST];

typedef void operation(const struct parts *p);

#define W MPI_COMM_WORLD
#define I MPI_INT
static void reduce_scatter(const struct parts *p) { MPI_Reduce_scatter(in, out, p->by_rank, I, MPI_SUM, W); }
static void gatherv(const struct parts *p) { MPI_Gatherv(in, p->own, I, out, p->by_rank, p->starts, I, p->root, W); }
static void scatterv(const struct parts *p) { MPI_Scatterv(in, p->by_rank, p->starts, I, out, p->own, I, p->root, W); }
static void allgatherv(const struct parts *p) { MPI_Allgatherv(in, p->own, I, out, p->by_rank, p->starts, I, W); }
static void alltoallv(const struct parts *p)
{
    MPI_Alltoallv(in, p->send, p->starts, I, out, p->receive, p->starts, I, W);
}
static void ireduce_scatter(const struct parts *p)
{
    MPI_Request request;
    MPI_Ireduce_scatter(in, out, p->by_rank, I, MPI_SUM, W, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void gather(const struct parts *p) { MPI_Gather(in, p->length, I, out, p->length, I, p->root, W); }
static void scatter(const struct parts *p) { MPI_Scatter(in, p->length, I, out, p->length, I, p->root, W); }
static void allgather(const struct parts *p) { MPI_Allgather(in, p->length, I, out, p->length, I, W); }
static void alltoall(const struct parts *p) { MPI_Alltoall(in, p->length, I, out, p->length, I, W); }
static void block(const struct parts *p) { MPI_Reduce_scatter_block(in, out, p->length, I, MPI_SUM, W); }
static void reduce(const struct parts *p) { MPI_Reduce(in, out, p->length, I, MPI_SUM, p->root, W); }
static void bcast(const struct parts *p) { MPI_Bcast(in, p->length, I, p->root, W); }
static void allreduce(const struct parts *p) { MPI_Allreduce(in, out, p->length, I, MPI_SUM, W); }
static void scan(const struct parts *p) { MPI_Scan(in, out, p->length, I, MPI_SUM, W); }
static void exscan(const struct parts *p) { MPI_Exscan(in, out, p->length, I, MPI_SUM, W); }

static const struct { operation *call; int has_counts; } operations[] = {
    {reduce_scatter, 1}, {ireduce_scatter, 1}, {gatherv, 1}, {scatterv, 1}, {allgatherv, 1}, {alltoallv, 1},
    {gather, 0},         {scatter, 0},         {allgather, 0}, {alltoall, 0}, {block, 0}, {reduce, 0},
    {bcast, 0},          {allreduce, 0},       {scan, 0},    {exscan, 0},
};

int main(int argc, char **argv)
{
    struct parts parts = {0};
    int size, done = 0, pause = argc > 1 ? atoi(argv[1]) : 2000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &parts.rank);
    MPI_Comm_size(W, &size);
    for (unsigned which = 0; which < sizeof operations / sizeof *operations; which++)
        for (int with = 0; with <= (operations[which].has_counts ? 1 << size : 2); with++)
            for (int late = 0; late < size; late++) {
                /* Every subset of the processes has an element. In operations of one length, all have one or none has. */
                int set = operations[which].has_counts ? with & ((1 << size) - 1) : with ? (1 << size) - 1 : 0;
                parts.root = with % size;
                parts.length = set != 0;
                parts.own = set >> parts.rank & 1;
                for (int r = 0, start = 0; r < size; r++) {
                    parts.by_rank[r] = set >> r & 1;
                    parts.starts[r] = start;
                    start += parts.by_rank[r];
                    /* The processes of the set exchange elements with each other. */
                    parts.send[r] = parts.receive[r] = parts.own && parts.by_rank[r];
                }
                MPI_Barrier(W);
                if (parts.rank == late) usleep((useconds_t)pause);
                operations[which].call(&parts);
                done++;
            }
    printf("rank %d: %d operations\n", parts.rank, done);
    MPI_Finalize();
    return 0;
}
