/* Intercepts MPI_Send and MPI_Recv and only reads the clock before and after the call: the minimum cost of any recorder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>

static volatile uint64_t last;

static inline void look(void) {
#ifdef __x86_64__
    last = __builtin_ia32_rdtsc();
#else
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    last = t;
#endif
}

int MPI_Send(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    static int (*send)(const void *, int, MPI_Datatype, int, int, MPI_Comm);
    if (!send) *(void **)&send = dlsym(RTLD_NEXT, "PMPI_Send");
    look();
    int result = send(data, count, type, to, tag, comm);
    look();
    return result;
}

int MPI_Recv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status) {
    static int (*receive)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
    if (!receive) *(void **)&receive = dlsym(RTLD_NEXT, "PMPI_Recv");
    look();
    int result = receive(data, count, type, from, tag, comm, status);
    look();
    return result;
}
