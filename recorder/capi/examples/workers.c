/*
 * Threads that work, a device with a separate clock, events from a signal handler, and losses.
 *
 *     cc workers.c -o workers $(pkg-config --cflags --libs annals) -lpthread
 *     ./workers DIRECTORY
 *     trace-merge DIRECTORY -o run.annals; trace-cli regions run.annals; trace-cli dropped run.annals
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <annals.h>

enum { THREADS = 4, STEPS = 1000, LOADED_EACH = 10, SIGNAL_EACH = 100, SAMPLES = 50 };

static annals_region work, step;
static annals_event_type loaded, interrupted;
static annals_event_type queue_length;

/* Setting up is worth a message when it fails; raising is not: what is refused is counted. */
static void check(annals_status status, const char *what)
{
    if (status != ANNALS_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, annals_status_text(status), annals_last_error());
        exit(1);
    }
}

/* The device's clock: microseconds in 32 bits. */
static uint64_t read_device_clock(void *data)
{
    struct timespec now;
    (void)data;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000) & UINT32_MAX;
}

static void on_signal(int number)
{
    annals_value value = annals_i32(number);
    annals_raise(interrupted, &value, 1);
}

static void *run_worker(void *argument)
{
    uint32_t number = *(const uint32_t *)argument;
    uint32_t n;
    annals_enter(work);
    for (n = 0; n < STEPS; n++) {
        annals_enter(step);
        annals_metric_i64(queue_length, (int64_t)n - STEPS / 2);
        if (n % LOADED_EACH == 0) {
            annals_value values[3];
            values[0] = annals_string("mesh.dat");
            values[1] = annals_u64((uint64_t)n << 20);
            values[2] = n % 20 == 0 ? annals_u32(number) : annals_absent();
            annals_raise(loaded, values, 3);
        }
        if (n % SIGNAL_EACH == 0)
            pthread_kill(pthread_self(), SIGUSR1);
        annals_leave(step);
    }
    annals_leave(work);
    return NULL;
}

static annals_event_type define(annals_recorder recorder, const char *name,
                                const annals_element *elements, size_t count)
{
    annals_event_type event_type;
    annals_event_type_spec spec = {0};
    spec.size = sizeof spec;
    spec.name = name;
    spec.elements = elements;
    spec.element_count = count;
    check(annals_add_event_type(recorder, &spec, &event_type), name);
    return event_type;
}

/* A device that raises in chronological order, and reports how many events it dropped. */
static void run_device(annals_recorder recorder)
{
    const annals_element elements[] = {{.name = "level", .type = ANNALS_TYPE_F64, .unit = "V"}};
    annals_event_type sample = define(recorder, "sample", elements, 1);
    annals_clock_spec clock_spec = {0};
    annals_source_spec source_spec = {0};
    annals_source device;
    int n;

    clock_spec.size = sizeof clock_spec;
    clock_spec.name = "device clock";
    clock_spec.ticks_per_second = 1000000;
    clock_spec.max_ticks = UINT32_MAX;
    clock_spec.read = read_device_clock;
    source_spec.size = sizeof source_spec;
    source_spec.name = "device";
    source_spec.description = "an analogue input";
    check(annals_add_clock(recorder, &clock_spec, &source_spec.clock), "device clock");
    check(annals_add_source(recorder, &source_spec, &device), "device");
    for (n = 0; n < SAMPLES; n++) {
        annals_value level = annals_f64(n / 8.0);
        annals_raise_on(device, sample, &level, 1);
    }
    annals_report_dropped(device, sample, 7);
    annals_report_no_callback(device, sample);
}

/* The card's clock, which is known here and nowhere else: 25 ticks a microsecond since the first look. */
static uint64_t read_card_clock(void *data)
{
    uint64_t *first_ns = data;
    struct timespec now;
    uint64_t now_ns;
    clock_gettime(CLOCK_MONOTONIC, &now);
    now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    if (*first_ns == 0)
        *first_ns = now_ns;
    return (now_ns - *first_ns) / 40;
}

/* A card whose clock Annals cannot read: two calibrations tie it to the host's clock. Its events are raised in any order. */
static void run_card(annals_recorder recorder)
{
    const annals_element elements[] = {{.name = "packet", .type = ANNALS_TYPE_BYTES}};
    annals_event_type arrived = define(recorder, "arrived", elements, 1);
    annals_clock_spec clock_spec = {0};
    annals_source_spec source_spec = {0};
    annals_source card;
    const struct timespec a_while = {0, 200000};
    uint64_t n, first_ns = 0;

    clock_spec.size = sizeof clock_spec;
    clock_spec.name = "card clock";
    clock_spec.ticks_per_second = 25000000;
    source_spec.size = sizeof source_spec;
    source_spec.name = "card";
    source_spec.ordering = ANNALS_UNORDERED;
    source_spec.overflow = ANNALS_OVERFLOW_BLOCK;
    check(annals_add_clock(recorder, &clock_spec, &source_spec.clock), "card clock");
    check(annals_add_source(recorder, &source_spec, &card), "card");
    check(annals_calibrate(recorder, source_spec.clock, read_card_clock, &first_ns), "calibration");
    /* Packets arrive, and are read later. */
    nanosleep(&a_while, NULL);
    for (n = 0; n < SAMPLES; n++) {
        const unsigned char packet[] = {0x00, 0xff, (unsigned char)n};
        annals_value value = annals_bytes(packet, sizeof packet);
        annals_raise_at(card, 1000 + (n ^ 1) * 25, arrived, &value, 1);
    }
    check(annals_calibrate(recorder, source_spec.clock, read_card_clock, &first_ns), "calibration");
}

int main(int argc, char **argv)
{
    const annals_element loaded_elements[] = {
        {.name = "file", .type = ANNALS_TYPE_STRING},
        {.name = "size", .type = ANNALS_TYPE_U64, .unit = "bytes"},
        {.name = "worker", .type = ANNALS_TYPE_U32, .is_optional = 1},
    };
    const annals_element interrupted_elements[] = {{.name = "signal", .type = ANNALS_TYPE_I32}};
    const annals_element note_elements[] = {{.name = "text", .type = ANNALS_TYPE_STRING}};
    const annals_setting settings[] = {{"ANNALS_DIR", argv[1]}, {"ANNALS_RANK", "0"}};
    annals_recorder recorder;
    annals_event_type note;
    annals_statistics statistics = {0};
    struct sigaction action = {0};
    pthread_t threads[THREADS];
    uint32_t numbers[THREADS];
    uint32_t n;
    annals_value value;
    char *huge;

    if (argc != 2) {
        fprintf(stderr, "usage: workers DIRECTORY\n");
        return 2;
    }
    /* The user's environment knows better than we do. */
    check(annals_start(settings, 2, ANNALS_ENVIRONMENT_WINS, &recorder), "start");
    check(annals_add_region_at(recorder, "work", __FILE__, __LINE__, "workers", &work), "work");
    check(annals_add_region(recorder, "step", &step), "step");
    check(annals_add_metric(recorder, "queue length", "", ANNALS_TYPE_I64, &queue_length), "queue");
    check(annals_add_property(recorder, "example", "workers"), "property");
    loaded = define(recorder, "loaded", loaded_elements, 3);
    interrupted = define(recorder, "interrupted", interrupted_elements, 1);
    note = define(recorder, "note", note_elements, 1);

    action.sa_handler = on_signal;
    sigaction(SIGUSR1, &action, NULL);

    for (n = 0; n < THREADS; n++) {
        numbers[n] = n;
        pthread_create(&threads[n], NULL, run_worker, &numbers[n]);
    }
    run_device(recorder);
    run_card(recorder);
    for (n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);

    /* What does not fit a page of the buffer is dropped, and counted. */
    huge = calloc(1, 1 << 20);
    value = annals_text(huge, 1 << 20);
    for (n = 0; n < 3; n++)
        annals_raise(note, &value, 1);
    free(huge);

    statistics.size = sizeof statistics;
    check(annals_finish(recorder, &statistics), "finish");
    check(annals_free(recorder), "free");
    printf("raised %" PRIu64 ", dropped %" PRIu64 ", misused %" PRIu64 "\n", statistics.raised,
           statistics.dropped, statistics.misused);
    return 0;
}
