/* A program that works with and without MPI, and checks in every way. The argument is an MPI library that it loads then.
   With PLUGIN, a library that the program loads; with DEMANDING, one that needs MPI and does not say so to the linker. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef DEMANDING
int MPI_Init(int *, char ***);
int MPI_Initialized(int *);
int MPI_Finalized(int *);

int ask(void) {
    int has_begun = 5, has_ended = 5;
    int codes = MPI_Initialized(&has_begun) + MPI_Finalized(&has_ended);
    printf("codes %d, flags %d %d\n", codes, has_begun, has_ended);
    fflush(stdout);
    return MPI_Init(0, 0);
}
#else
__attribute__((weak)) int MPI_Init(int *, char ***);
__attribute__((weak)) int MPI_Initialized(int *);
__attribute__((weak)) int MPI_Get_version(int *, int *);
__attribute__((weak)) int MPIX_Comm_shrink(int, int *);

#ifdef PLUGIN
int ask(void) {
    if (MPI_Init) return MPI_Init(0, 0) + 1;
    return MPI_Initialized || MPI_Get_version ? 2 : 0;
}
#else
static int (*const table[])(int *, char ***) = {MPI_Init};

static int is_looking, allocated;

/* An allocator that looks the next one up may not be entered meanwhile. */
void *malloc(size_t size) {
    extern void *__libc_malloc(size_t);
    allocated += is_looking;
    return __libc_malloc(size);
}

static int (*found(const char *name))() {
    return (int (*)())dlsym(RTLD_DEFAULT, name);
}

int main(int argc, char **argv) {
    void *self = dlopen(NULL, RTLD_NOW), *plugin = dlopen(PLUGIN_FILE, RTLD_NOW);
    printf("weak %d %d %d %d, in a table %d\n", !!MPI_Init, !!MPI_Initialized, !!MPI_Get_version, !!MPIX_Comm_shrink, !!table[0]);
    printf("found %d %d %d\n", !!found("MPI_Init"), !!dlsym(RTLD_NEXT, "MPI_Finalized"), !!dlsym(self, "MPI_Wtime"));
    const char *error = dlerror();
    printf("error %d\n", error && strstr(error, "undefined symbol: MPI_Wtime"));
    printf("other names %d %d\n", !!found("printf"), !!found("no_such_name"));
    is_looking = 1;
    int has_next = dlsym(RTLD_NEXT, "malloc") && dlsym(RTLD_DEFAULT, "free");
    is_looking = 0;
    printf("next %d, allocated %d\n", has_next, allocated);
    printf("plugin %d\n", ((int (*)(void))dlsym(plugin, "ask"))());
    if (argc > 1) {
        int flag = 7, codes;
        printf("loaded %d\n", !!dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL));
        codes = found("MPI_Initialized")(&flag);
        printf("before %d %d\n", codes, flag);
        codes = found("MPI_Init")(0, 0) + found("MPI_Initialized")(&flag) + found("MPI_Finalize")();
        printf("after %d %d, lacking %d\n", codes, flag, !!found("MPIX_Barrier_init"));
    }
    return 0;
}
#endif
#endif
