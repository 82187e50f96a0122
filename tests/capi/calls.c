/* What the event path calls: never the dynamic loader for thread-local storage, and never the allocator,
 * from a thread's first event on, in signal handlers too. Arguments: a directory.
 *
 * The program's definitions of these functions take precedence over those of the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <annals.h>

static __thread int is_watched;
static __thread long loader_calls, allocations;

static void *(*next_tls)(void *);
static void *(*next_malloc)(size_t);
static void *(*next_realloc)(void *, size_t);
static char early[4096];
static size_t early_used;

static void find_next(void)
{
    *(void **)&next_tls = dlsym(RTLD_NEXT, "__tls_get_addr");
    *(void **)&next_realloc = dlsym(RTLD_NEXT, "realloc");
    *(void **)&next_malloc = dlsym(RTLD_NEXT, "malloc");
}

void *__tls_get_addr(void *index)
{
    if (next_tls == NULL)
        find_next();
    loader_calls += is_watched;
    return next_tls(index);
}

void *malloc(size_t size)
{
    if (next_malloc == NULL) {
        /* Asked for by dlsym itself. */
        early_used = (early_used + 15) / 16 * 16 + size;
        if (early_used > sizeof early)
            abort();
        return early + early_used - size;
    }
    allocations += is_watched;
    return next_malloc(size);
}

void *realloc(void *memory, size_t size)
{
    if (next_realloc == NULL)
        find_next();
    allocations += is_watched;
    return next_realloc(memory, size);
}

static annals_region region;
static annals_event_type three;
static annals_source ticking;

static uint64_t read_ticks(void *data)
{
    return __atomic_add_fetch((uint64_t *)data, 1, __ATOMIC_RELAXED);
}

static void on_signal(int number)
{
    (void)number;
    annals_enter(region);
    annals_leave(region);
}

static long raise_all(void)
{
    long n, wrong = 0;
    for (n = 0; n < 50000; n++) {
        annals_value values[] = {annals_u32(7), annals_string("text"), annals_i64(n)};
        wrong += annals_enter(region) != ANNALS_OK;
        wrong += annals_raise(three, values, 3) != ANNALS_OK;
        if (n % 16 == 0)
            wrong += annals_raise_on(ticking, three, values, 3) != ANNALS_OK;
        if (n % 1024 == 0)
            raise(SIGUSR1);
        wrong += annals_leave(region) != ANNALS_OK;
    }
    return wrong;
}

static void *run(void *argument)
{
    long *result = argument;
    is_watched = 1;
    result[0] = raise_all();
    is_watched = 0;
    result[1] = loader_calls;
    result[2] = allocations;
    return NULL;
}

int main(int argc, char **argv)
{
    static uint64_t ticks;
    const annals_setting settings[] = {{"ANNALS_DIR", argv[1]}, {"ANNALS_PAGE", "4K"}};
    const annals_element elements[] = {
        {.name = "a", .type = ANNALS_TYPE_U32},
        {.name = "b", .type = ANNALS_TYPE_STRING},
        {.name = "c", .type = ANNALS_TYPE_I64},
    };
    annals_event_type_spec spec = {sizeof spec, "three", NULL, 0, 0, NULL, elements, 3};
    annals_clock_spec clock = {sizeof clock, "ticks", 1000, 0, read_ticks, &ticks, 0, 0};
    annals_source_spec source = {.size = sizeof source, .name = "ticking"};
    annals_recorder recorder;
    pthread_t thread;
    long result[3] = {-1, -1, -1};
    int wrong = 0;
    if (argc != 2)
        return 2;
    find_next();
    wrong += annals_start(settings, 2, 0, &recorder) != ANNALS_OK;
    wrong += annals_add_region(recorder, "region", &region) != ANNALS_OK;
    wrong += annals_add_event_type(recorder, &spec, &three) != ANNALS_OK;
    wrong += annals_add_clock(recorder, &clock, &source.clock) != ANNALS_OK;
    wrong += annals_add_source(recorder, &source, &ticking) != ANNALS_OK;
    signal(SIGUSR1, on_signal);
    pthread_create(&thread, NULL, run, result);
    pthread_join(thread, NULL);
    /* The counters count: what is no event allocates. */
    is_watched = 1;
    wrong += annals_add_region(recorder, "another", &region) != ANNALS_OK;
    is_watched = 0;
    wrong += allocations == 0;
    wrong += annals_finish(recorder, NULL) != ANNALS_OK;
    printf("%d wrong, %ld refused, %ld loader calls, %ld allocations\n", wrong, result[0],
           result[1], result[2]);
    return 0;
}
