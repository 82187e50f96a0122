/* Loads libannals.so at run time, records, and unloads it while threads that recorded still run.
 * Arguments: the library, a directory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <annals.h>

enum { THREADS = 4, CALLS = 1000 };

static annals_status (*enter)(annals_region);
static annals_status (*leave)(annals_region);
static annals_region region;
static pthread_barrier_t recorded, unloaded;

static void *run(void *argument)
{
    long n, wrong = 0;
    (void)argument;
    for (n = 0; n < CALLS; n++)
        wrong += enter(region) != ANNALS_OK || leave(region) != ANNALS_OK;
    pthread_barrier_wait(&recorded);
    pthread_barrier_wait(&unloaded);
    /* And ends, which the library must notice. */
    return (void *)wrong;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    void *library;
    long wrong = 0;
    int n;
    if (argc != 3)
        return 2;
    /* Threads that were there before the library have room for its thread-local storage, too. */
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    {
        const annals_setting setting = {"ANNALS_DIR", argv[2]};
        annals_status (*start)(const annals_setting *, size_t, uint32_t, annals_recorder *);
        annals_status (*add_region)(annals_recorder, const char *, annals_region *);
        annals_recorder recorder;
        *(void **)&start = dlsym(library, "annals_start");
        *(void **)&add_region = dlsym(library, "annals_add_region");
        *(void **)&enter = dlsym(library, "annals_enter");
        *(void **)&leave = dlsym(library, "annals_leave");
        wrong += start(&setting, 1, 0, &recorder) != ANNALS_OK;
        wrong += add_region(recorder, "loaded", &region) != ANNALS_OK;
    }
    pthread_barrier_init(&recorded, NULL, THREADS + 1);
    pthread_barrier_init(&unloaded, NULL, THREADS + 1);
    for (n = 0; n < THREADS; n++)
        pthread_create(&threads[n], NULL, run, NULL);
    pthread_barrier_wait(&recorded);
    wrong += dlclose(library) != 0;
    pthread_barrier_wait(&unloaded);
    for (n = 0; n < THREADS; n++) {
        void *of_thread;
        pthread_join(threads[n], &of_thread);
        wrong += (long)of_thread;
    }
    /* The program continues; its end finishes the recording. */
    free(malloc(1 << 20));
    usleep(10000);
    return wrong != 0;
}
