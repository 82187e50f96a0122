/* Makes code while it runs, and names it as runtimes do for perf: `map`, `late` (names are written after the code has run), `dump`, `code`
 * (no names). Prints the processor time in each code, seconds, and the path of the map. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Counts its argument down. */
#if defined(__x86_64__)
static const unsigned char loop[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3};
#else
static const uint32_t loop[] = {0xf1000400, 0x54ffffe1, 0xd65f03c0};
#endif

static char *pages;
static FILE *file;
static uint64_t moments[4];

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static uint64_t moment(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

static char *code_at(int page) {
    char *code = pages + 4096 * page;
    memcpy(code, loop, sizeof loop);
    __builtin___clear_cache(code, code + sizeof loop);
    return code;
}

__attribute__((noinline)) double run(int page) {
    double before = now(CLOCK_THREAD_CPUTIME_ID);
    char *code = code_at(page);
    while (now(CLOCK_THREAD_CPUTIME_ID) < before + 0.15) ((void (*)(long))code)(1000000);
    return now(CLOCK_THREAD_CPUTIME_ID) - before;
}

static void name_of(int page, long length, const char *name) {
    fprintf(file, "%lx %lx %s\n", (long)(pages + 4096 * page), length, name);
    fflush(file);
}

/* Times of a map are not known: names hold from when they are read on. */
static void wait_for_the_reader(void) { usleep(300000); }

static void load(uint64_t time, int page, const char *name) {
    uint64_t code = (uintptr_t)(pages + 4096 * page), length = 56 + strlen(name) + 1 + sizeof loop;
    uint64_t head[] = {length << 32, time, (uint64_t)getpid() << 32 | getpid(), code, code, sizeof loop, time};
    fwrite(head, sizeof head, 1, file);
    fwrite(name, strlen(name) + 1, 1, file);
    fwrite(loop, sizeof loop, 1, file);
}

static void dump(const char *path) {
    int descriptor = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    file = fdopen(descriptor, "w+");
    uint32_t header[10] = {0x4a695444, 1, 40, 0, 0, getpid()};
    fwrite(header, sizeof header, 1, file);
    fflush(file);
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, descriptor, 0) == MAP_FAILED) exit(3);
    double times[4];
    for (int i = 0; i < 4; i++) {
        moments[i] = moment();
        times[i] = run(i == 2 ? 1 : i == 3 ? 2 : 0);
    }
    load(moments[0], 0, "made_first");
    load(moments[1], 0, "made_second");
    load(moments[2], 1, "made_second");
    /* Later than all samples. */
    load(moment() + 1000000000, 2, "made_never");
    fclose(file);
    printf("made_first %.6f made_second %.6f\n", times[0], times[1] + times[2]);
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "";
    char path[64];
    pages = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return 3;
    if (!strcmp(mode, "dump")) {
        snprintf(path, sizeof path, "%s/jit-%d.dump", arguments[2], getpid());
        dump(path);
        return 0;
    }
    if (!strcmp(mode, "code")) {
        run(0);
        printf("%lx\n", (long)pages);
        return 0;
    }
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    file = fopen(path, "a");
    if (!file) return 3;
    double times[3];
    if (!strcmp(mode, "map")) {
        name_of(0, 1 << 16, "made_around");
        name_of(0, 64, "made_first");
        name_of(1, 64, "made_other");
        times[0] = run(0);
        wait_for_the_reader();
        name_of(0, sizeof loop, "made_second (tier 2)");
        times[1] = run(0);
        times[2] = run(2);
        printf("made_first %.6f made_second %.6f made_around %.6f\n", times[0], times[1], times[2]);
    } else {
        times[0] = run(0);
        wait_for_the_reader();
        name_of(0, 64, "made_late");
        printf("made_late %.6f\n", times[0]);
    }
    fprintf(stderr, "%s\n", path);
    return 0;
}
