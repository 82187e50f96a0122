/* All mistakes of a C program result in a status, and the program continues. Argument: a directory. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <annals.h>

static int failures;

static void expect_at(int line, const char *call, annals_status found, annals_status expected)
{
    if (found != expected) {
        failures++;
        printf("line %d: %s: expected %s, found %s (%s)\n", line, call,
               annals_status_text(expected), annals_status_text(found), annals_last_error());
    }
}

#define EXPECT(expected, call) expect_at(__LINE__, #call, (call), ANNALS_##expected)
#define CHECK(condition) \
    ((condition) ? (void)0 : (failures++, (void)printf("line %d: %s\n", __LINE__, #condition)))

static const char *directory;

static annals_recorder start(void)
{
    const annals_setting settings[] = {{"ANNALS_DIR", directory}, {"ANNALS_BUFFER", "1M"}};
    annals_recorder recorder = {0};
    EXPECT(OK, annals_start(settings, 2, ANNALS_ENVIRONMENT_IGNORED, &recorder));
    return recorder;
}

static annals_event_type_spec spec_of(const char *name, const annals_element *elements, size_t count)
{
    annals_event_type_spec spec = {0};
    spec.size = sizeof spec;
    spec.name = name;
    spec.elements = elements;
    spec.element_count = count;
    return spec;
}

static annals_statistics statistics_of(annals_recorder recorder)
{
    annals_statistics statistics = {0};
    statistics.size = sizeof statistics;
    EXPECT(OK, annals_read_statistics(recorder, &statistics));
    return statistics;
}

static uint64_t no_clock(void *data)
{
    (void)data;
    return 1;
}

/* Every function that takes a recorder, with one that is not good for anything. */
static void refuse_recorder(annals_recorder recorder, annals_status expected)
{
    annals_statistics statistics = {0};
    annals_clock_spec clock_spec = {0};
    annals_source_spec source_spec = {0};
    annals_event_type_spec event_spec = spec_of("late", NULL, 0);
    annals_region region;
    annals_clock clock;
    annals_source source;
    annals_event_type event_type;

    statistics.size = sizeof statistics;
    clock_spec.size = sizeof clock_spec;
    clock_spec.name = "late";
    clock_spec.ticks_per_second = 1;
    clock_spec.read = no_clock;
    source_spec.size = sizeof source_spec;
    source_spec.name = "late";
#define REFUSE(call) expect_at(__LINE__, #call, (call), expected)
    REFUSE(annals_set_rank(recorder, 0, 1));
    REFUSE(annals_add_property(recorder, "key", "value"));
    REFUSE(annals_add_clock(recorder, &clock_spec, &clock));
    clock.bits = recorder.bits + 1;
    REFUSE(annals_calibrate(recorder, clock, no_clock, NULL));
    REFUSE(annals_add_source(recorder, &source_spec, &source));
    REFUSE(annals_add_region(recorder, "late", &region));
    REFUSE(annals_add_region_at(recorder, "late", "late.c", 1, "late", &region));
    REFUSE(annals_add_event_type(recorder, &event_spec, &event_type));
    REFUSE(annals_add_metric(recorder, "late", "", ANNALS_TYPE_F64, &event_type));
    REFUSE(annals_apply(recorder, "off event late"));
    REFUSE(annals_snapshot(recorder, NULL, 0, NULL));
    REFUSE(annals_pause(recorder));
    REFUSE(annals_resume(recorder));
    if (expected == ANNALS_ERROR_HANDLE) {
        char text[8];
        size_t length;
        REFUSE(annals_finish(recorder, NULL));
        REFUSE(annals_free(recorder));
        REFUSE(annals_make_global(recorder));
        REFUSE(annals_read_statistics(recorder, &statistics));
        REFUSE(annals_recording_path(recorder, text, sizeof text, &length));
        REFUSE(annals_storage_failure(recorder, text, sizeof text, &length));
        REFUSE(annals_not_kill_safe(recorder, text, sizeof text, &length));
        REFUSE(annals_threads(recorder, &source));
    }
}

/* Checks that all functions that raise events refuse. */
static void refuse_events(uint64_t source_bits, uint64_t event_bits, uint64_t region_bits,
                          annals_status expected)
{
    annals_source source = {source_bits};
    annals_event_type event_type = {event_bits};
    annals_region region = {region_bits};
    REFUSE(annals_enter(region));
    REFUSE(annals_leave(region));
    REFUSE(annals_raise(event_type, NULL, 0));
    REFUSE(annals_point(event_type));
    REFUSE(annals_raise_on(source, event_type, NULL, 0));
    REFUSE(annals_raise_at(source, 7, event_type, NULL, 0));
    REFUSE(annals_report_dropped(source, event_type, 1));
    REFUSE(annals_report_no_callback(source, event_type));
}

static void null_pointers(annals_recorder recorder)
{
    const annals_setting no_name = {NULL, "x"}, no_value = {"ANNALS_DIR", NULL};
    annals_event_type_spec event_spec = spec_of(NULL, NULL, 0);
    annals_clock_spec clock_spec = {0};
    annals_source_spec source_spec = {0};
    annals_element nameless = {0};
    annals_recorder other;
    annals_event_type event_type;
    annals_region region;
    annals_source source;
    annals_clock clock;

    EXPECT(ERROR_NULL, annals_start(NULL, 0, 0, NULL));
    EXPECT(ERROR_NULL, annals_start(NULL, 1, 0, &other));
    EXPECT(ERROR_NULL, annals_start(&no_name, 1, 0, &other));
    EXPECT(ERROR_NULL, annals_start(&no_value, 1, 0, &other));
    EXPECT(ERROR_NULL, annals_read_statistics(recorder, NULL));
    EXPECT(ERROR_NULL, annals_recording_path(recorder, NULL, 0, NULL));
    EXPECT(ERROR_NULL, annals_recording_path(recorder, NULL, 10, NULL));
    EXPECT(ERROR_NULL, annals_apply(recorder, NULL));
    EXPECT(ERROR_NULL, annals_add_property(recorder, NULL, "value"));
    EXPECT(ERROR_NULL, annals_add_property(recorder, "key", NULL));
    EXPECT(ERROR_NULL, annals_add_region(recorder, NULL, &region));
    EXPECT(ERROR_NULL, annals_add_region(recorder, "region", NULL));
    EXPECT(ERROR_NULL, annals_add_region_at(recorder, NULL, NULL, 0, NULL, &region));
    EXPECT(OK, annals_add_region_at(recorder, "region", NULL, 0, NULL, &region));
    EXPECT(ERROR_NULL, annals_add_event_type(recorder, NULL, &event_type));
    EXPECT(ERROR_NULL, annals_add_event_type(recorder, &event_spec, &event_type));
    event_spec = spec_of("type", NULL, 1);
    EXPECT(ERROR_NULL, annals_add_event_type(recorder, &event_spec, &event_type));
    nameless.type = ANNALS_TYPE_I32;
    event_spec = spec_of("type", &nameless, 1);
    EXPECT(ERROR_NULL, annals_add_event_type(recorder, &event_spec, &event_type));
    event_spec = spec_of("type", NULL, 0);
    EXPECT(ERROR_NULL, annals_add_event_type(recorder, &event_spec, NULL));
    EXPECT(ERROR_NULL, annals_add_metric(recorder, NULL, "", ANNALS_TYPE_F64, &event_type));
    EXPECT(ERROR_NULL, annals_add_metric(recorder, "metric", "", ANNALS_TYPE_F64, NULL));
    EXPECT(ERROR_NULL, annals_add_clock(recorder, NULL, &clock));
    clock_spec.size = sizeof clock_spec;
    EXPECT(ERROR_NULL, annals_add_clock(recorder, &clock_spec, &clock));
    EXPECT(ERROR_NULL, annals_add_clock(recorder, &clock_spec, NULL));
    clock.bits = recorder.bits + 1;
    EXPECT(ERROR_NULL, annals_calibrate(recorder, clock, NULL, NULL));
    EXPECT(ERROR_NULL, annals_add_source(recorder, NULL, &source));
    source_spec.size = sizeof source_spec;
    EXPECT(ERROR_NULL, annals_add_source(recorder, &source_spec, &source));
    EXPECT(ERROR_NULL, annals_add_source(recorder, &source_spec, NULL));
    EXPECT(ERROR_NULL, annals_threads(recorder, NULL));
}

static void bad_definitions(annals_recorder recorder)
{
    const annals_setting unknown = {"ANNALS_COLOUR", "blue"}, wrong = {"ANNALS_BUFFER", "a lot"};
    const annals_setting nowhere = {"ANNALS_DIR", "/proc/nowhere"}, empty = {"ANNALS_BUFFER", ""};
    struct { annals_event_type_spec spec; uint64_t more; } later = {0};
    annals_element elements[257] = {0};
    char names[257][8];
    annals_event_type_spec spec;
    annals_clock_spec clock_spec = {0};
    annals_source_spec source_spec = {0};
    annals_recorder other;
    annals_event_type event_type, again;
    annals_clock clock;
    annals_source source;
    annals_region region;
    annals_statistics statistics = {0};
    char text[4];
    size_t length = 0;
    int n;

    EXPECT(ERROR_SETTING, annals_start(&unknown, 1, 0, &other));
    CHECK(strstr(annals_last_error(), "ANNALS_COLOUR") != NULL);
    EXPECT(ERROR_SETTING, annals_start(&wrong, 1, 0, &other));
    CHECK(strstr(annals_last_error(), "ANNALS_BUFFER is a number") != NULL);
    EXPECT(ERROR_SYSTEM, annals_start(&nowhere, 1, 0, &other));
    CHECK(strstr(annals_last_error(), "/proc/nowhere") != NULL);
    EXPECT(ERROR_SETTING, annals_start(&empty, 1, 3, &other));
    EXPECT(ERROR_SETTING, annals_apply(recorder, "off everything"));
    EXPECT(ERROR_TEXT, annals_add_region(recorder, "\xff", &region));
    EXPECT(ERROR_TEXT, annals_add_property(recorder, "key", "\xc3("));
    EXPECT(ERROR_DEFINITION, annals_set_rank(recorder, 4, 4));

    for (n = 0; n < 257; n++) {
        snprintf(names[n], sizeof names[n], "e%d", n);
        elements[n].name = names[n];
        elements[n].type = ANNALS_TYPE_I32;
    }
    spec = spec_of("type", elements, 257);
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &event_type));
    spec.element_count = SIZE_MAX;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &event_type));
    spec.element_count = 2;
    spec.size = 8;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &event_type));
    CHECK(strstr(annals_last_error(), "size") != NULL);
    later.spec = spec;
    later.spec.size = sizeof later;
    EXPECT(OK, annals_add_event_type(recorder, &later.spec, &event_type));
    later.more = 1;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &later.spec, &event_type));
    spec.size = sizeof spec;
    EXPECT(OK, annals_add_event_type(recorder, &spec, &again));
    CHECK(again.bits == event_type.bits);
    spec.element_count = 1;
    EXPECT(ERROR_CONFLICT, annals_add_event_type(recorder, &spec, &again));
    spec = spec_of("wrong", elements, 2);
    elements[1].name = "e0";
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    elements[1].name = "e1";
    spec.key = "e2";
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    spec.key = NULL;
    spec.role = 1000;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    spec.role = ANNALS_ROLE_POINT;
    spec.verbosity = 256;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    spec.verbosity = ANNALS_VERBOSITY_USER_BASIC;
    elements[0].type = 0;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    elements[0].type = 8;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    elements[0].type = ANNALS_TYPE_STRING;
    elements[0].reference = ANNALS_REFERENCE_REGION;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    elements[0].type = ANNALS_TYPE_U32;
    elements[0].unit = "m";
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    elements[0].unit = NULL;
    elements[0].reference = 100;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    elements[0].reference = 0;
    elements[0].is_optional = 2;
    EXPECT(ERROR_DEFINITION, annals_add_event_type(recorder, &spec, &again));
    EXPECT(ERROR_DEFINITION, annals_add_metric(recorder, "m", "", ANNALS_TYPE_STRING, &again));
    EXPECT(ERROR_DEFINITION, annals_add_metric(recorder, "m", "", 99, &again));

    clock_spec.size = sizeof clock_spec;
    clock_spec.name = "stopped";
    EXPECT(ERROR_DEFINITION, annals_add_clock(recorder, &clock_spec, &clock));
    clock.bits = event_type.bits ^ 1;
    EXPECT(ERROR_HANDLE, annals_calibrate(recorder, clock, no_clock, NULL));
    clock_spec.ticks_per_second = 1;
    clock_spec.read = no_clock;
    EXPECT(OK, annals_add_clock(recorder, &clock_spec, &clock));
    EXPECT(ERROR_DEFINITION, annals_calibrate(recorder, clock, no_clock, NULL));
    CHECK(strstr(annals_last_error(), "calibrates this clock itself") != NULL);
    source_spec.size = sizeof source_spec;
    source_spec.name = "source";
    source_spec.ordering = 2;
    EXPECT(ERROR_DEFINITION, annals_add_source(recorder, &source_spec, &source));
    source_spec.ordering = ANNALS_ORDERED;
    source_spec.overflow = 4;
    EXPECT(ERROR_DEFINITION, annals_add_source(recorder, &source_spec, &source));
    source_spec.overflow = ANNALS_OVERFLOW_DEFAULT;
    source_spec.clock.bits = event_type.bits;
    EXPECT(ERROR_HANDLE, annals_add_source(recorder, &source_spec, &source));
    source_spec.clock.bits = 0;
    source_spec.own_location = 77;
    EXPECT(ERROR_DEFINITION, annals_add_source(recorder, &source_spec, &source));
    /* The structure as the first version had it: what follows is not the program's, and not read. */
    source_spec.size = offsetof(annals_source_spec, own_location);
    EXPECT(OK, annals_add_source(recorder, &source_spec, &source));
    source_spec.size--;
    EXPECT(ERROR_DEFINITION, annals_add_source(recorder, &source_spec, &source));
    CHECK(strstr(annals_last_error(), "size") != NULL);

    statistics.size = 16;
    EXPECT(ERROR_DEFINITION, annals_read_statistics(recorder, &statistics));
    EXPECT(ERROR_TOO_SMALL, annals_recording_path(recorder, text, sizeof text, &length));
    CHECK(strlen(text) == sizeof text - 1 && length > sizeof text);
    EXPECT(ERROR_TOO_SMALL, annals_recording_path(recorder, text, 0, &length));
    length = 0;
    EXPECT(OK, annals_recording_path(recorder, NULL, 0, &length));
    CHECK(length > sizeof text);
    CHECK(strcmp(annals_status_text(12345), "not a status of Annals") == 0);
    CHECK(annals_status_text(-1) != NULL);
}

static void bad_values(annals_recorder recorder)
{
    const annals_element elements[] = {
        {.name = "number", .type = ANNALS_TYPE_U32},
        {.name = "text", .type = ANNALS_TYPE_STRING, .is_optional = 1},
    };
    annals_event_type_spec spec = spec_of("values", elements, 2);
    annals_event_type event_type;
    annals_value good[] = {annals_u32(1), annals_absent()};
    annals_value values[2];
    uint64_t misused;

    EXPECT(OK, annals_add_event_type(recorder, &spec, &event_type));
    EXPECT(OK, annals_raise(event_type, good, 2));
    misused = statistics_of(recorder).misused;
    EXPECT(ERROR_VALUES, annals_raise(event_type, good, 1));
    EXPECT(ERROR_VALUES, annals_raise(event_type, NULL, 0));
    EXPECT(ERROR_NULL, annals_raise(event_type, NULL, 2));
    memcpy(values, good, sizeof good);
    values[0] = annals_i32(1);
    EXPECT(ERROR_VALUES, annals_raise(event_type, values, 2));
    values[0] = annals_absent();
    EXPECT(ERROR_VALUES, annals_raise(event_type, values, 2));
    values[0].type = 77;
    EXPECT(ERROR_VALUES, annals_raise(event_type, values, 2));
    values[0] = annals_u32(1);
    values[1] = annals_text(NULL, 5);
    EXPECT(ERROR_VALUES, annals_raise(event_type, values, 2));
    CHECK(statistics_of(recorder).misused == misused + 6);
    values[1] = annals_text(NULL, 0);
    EXPECT(OK, annals_raise(event_type, values, 2));
}

static void wrong_handles(annals_recorder recorder)
{
    annals_recorder other = start();
    annals_event_type_spec spec = spec_of("point", NULL, 0);
    annals_event_type here, there;
    annals_region region;
    annals_source source;
    annals_recorder zeros = {0};
    uint64_t random = 88172645463325252u;
    int n;

    EXPECT(OK, annals_add_event_type(recorder, &spec, &here));
    EXPECT(OK, annals_add_event_type(other, &spec, &there));
    EXPECT(OK, annals_add_region(recorder, "region", &region));
    EXPECT(OK, annals_threads(recorder, &source));
    /* Of another recorder, each time after an event here, and there. */
    for (n = 0; n < 2; n++) {
        EXPECT(OK, annals_raise(n ? here : there, NULL, 0));
        EXPECT(ERROR_HANDLE, annals_raise_on(source, there, NULL, 0));
        EXPECT(ERROR_HANDLE, annals_report_dropped(source, there, 1));
    }
    refuse_recorder(zeros, ANNALS_ERROR_HANDLE);
    refuse_events(0, 0, 0, ANNALS_ERROR_HANDLE);
    /* Of another kind, and numbers of things that are not there. */
    refuse_events(region.bits, source.bits, here.bits, ANNALS_ERROR_HANDLE);
    refuse_events(source.bits + 255, here.bits + 1000, region.bits + 1000, ANNALS_ERROR_HANDLE);
    zeros.bits = region.bits;
    refuse_recorder(zeros, ANNALS_ERROR_HANDLE);
    for (n = 0; n < 1000; n++) {
        annals_recorder garbage;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        garbage.bits = random | 1u << 31; /* of no kind there is, whatever the rest */
        refuse_recorder(garbage, ANNALS_ERROR_HANDLE);
        refuse_events(garbage.bits, garbage.bits, garbage.bits, ANNALS_ERROR_HANDLE);
        garbage.bits |= 0xffffffff00000000u;
        refuse_events(garbage.bits, garbage.bits, garbage.bits, ANNALS_ERROR_HANDLE);
    }
    /* Stale. */
    EXPECT(OK, annals_make_global(other));
    CHECK(annals_global().bits == other.bits);
    EXPECT(OK, annals_free(other));
    CHECK(annals_global().bits == 0);
    EXPECT(ERROR_HANDLE, annals_free(other));
    refuse_recorder(other, ANNALS_ERROR_HANDLE);
    EXPECT(OK, annals_raise(here, NULL, 0));
    EXPECT(ERROR_HANDLE, annals_raise(there, NULL, 0));
}

static void after_finish(void)
{
    annals_recorder recorder = start();
    annals_event_type_spec spec = spec_of("point", NULL, 0);
    annals_statistics statistics = {0};
    annals_event_type point;
    annals_region region;
    annals_source source;

    EXPECT(OK, annals_add_event_type(recorder, &spec, &point));
    EXPECT(OK, annals_add_region(recorder, "region", &region));
    EXPECT(OK, annals_threads(recorder, &source));
    EXPECT(OK, annals_enter(region));
    EXPECT(OK, annals_pause(recorder));
    EXPECT(OK, annals_leave(region));
    EXPECT(OK, annals_resume(recorder));
    statistics.size = sizeof statistics;
    EXPECT(OK, annals_finish(recorder, &statistics));
    CHECK(statistics.raised == 1 && statistics.is_finished == 1);
    EXPECT(OK, annals_finish(recorder, NULL));
    refuse_recorder(recorder, ANNALS_ERROR_FINISHED);
    refuse_events(source.bits, point.bits, region.bits, ANNALS_ERROR_FINISHED);
    CHECK(statistics_of(recorder).raised_after_finish >= 8);
    CHECK(statistics_of(recorder).raised == 1);
    EXPECT(OK, annals_free(recorder));
}

/* A clock that calls back what takes the locks that it is read under. */
static annals_recorder called_back;
static annals_status back[2];
static int backs;

static uint64_t calling_clock(void *data)
{
    annals_region region;
    (void)data;
    back[0] = annals_add_region(called_back, "from a clock", &region);
    back[1] = annals_free(called_back);
    return (uint64_t)++backs;
}

static void from_a_clock(void)
{
    annals_recorder recorder = start();
    annals_event_type_spec spec = spec_of("point", NULL, 0);
    annals_clock_spec clock_spec = {0};
    annals_source_spec source_spec = {0};
    annals_event_type point;
    annals_source source;

    called_back = recorder;
    clock_spec.size = sizeof clock_spec;
    clock_spec.name = "calling";
    clock_spec.ticks_per_second = 1000;
    clock_spec.read = calling_clock;
    source_spec.size = sizeof source_spec;
    source_spec.name = "source";
    EXPECT(OK, annals_add_event_type(recorder, &spec, &point));
    EXPECT(OK, annals_add_clock(recorder, &clock_spec, &source_spec.clock));
    EXPECT(OK, annals_add_source(recorder, &source_spec, &source));
    CHECK(backs > 0 && back[0] == ANNALS_ERROR_REENTERED && back[1] == ANNALS_ERROR_REENTERED);
    backs = 0;
    EXPECT(OK, annals_raise_on(source, point, NULL, 0));
    CHECK(backs > 0 && back[0] == ANNALS_ERROR_REENTERED && back[1] == ANNALS_ERROR_REENTERED);
    EXPECT(OK, annals_free(recorder));
}

/* A handler that does all it must not, while the program does the same. */
static annals_recorder handled;
static annals_event_type handled_point;
static volatile sig_atomic_t interrupted, refused, oddities;

static void meddle(int number)
{
    annals_statistics statistics = {0};
    annals_region region;
    annals_status status;
    (void)number;
    interrupted++;
    statistics.size = sizeof statistics;
    status = annals_add_region(handled, "from a handler", &region);
    refused += status == ANNALS_ERROR_REENTERED;
    oddities += status != ANNALS_OK && status != ANNALS_ERROR_REENTERED;
    status = annals_read_statistics(handled, &statistics);
    oddities += status != ANNALS_OK && status != ANNALS_ERROR_REENTERED;
    oddities += annals_point(handled_point) != ANNALS_OK;
}

static void from_a_handler(void)
{
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    annals_event_type_spec spec = spec_of("point", NULL, 0);
    struct sigaction action = {0};
    annals_region region;
    annals_region regions[50];
    char name[32];
    int n = 0, status = 0;

    handled = start();
    EXPECT(OK, annals_add_event_type(handled, &spec, &handled_point));
    EXPECT(OK, annals_point(handled_point));
    for (n = 0; n < 50; n++) {
        snprintf(name, sizeof name, "region %d", n);
        EXPECT(OK, annals_add_region(handled, name, &regions[n]));
    }
    action.sa_handler = meddle;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (n = 0; n < 2000000 && (interrupted < 300 || refused < 20); n++) {
        snprintf(name, sizeof name, "region %d", n % 50);
        status |= annals_add_region(handled, name, &region);
        status |= region.bits != regions[n % 50].bits;
        status |= annals_enter(region);
        status |= annals_leave(region);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(status == 0 && oddities == 0);
    CHECK(interrupted >= 300 && refused >= 20);
    EXPECT(OK, annals_finish(handled, NULL));
    EXPECT(OK, annals_free(handled));
}

/* Threads that use a recorder while it is finished and freed. */
static annals_recorder contended;
static annals_event_type contended_point;
static annals_region contended_region;
static int is_over;

static void *contend(void *argument)
{
    long wrong = 0;
    (void)argument;
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
        annals_statistics statistics = {0};
        annals_region region;
        annals_status status[6];
        unsigned n;
        statistics.size = sizeof statistics;
        status[0] = annals_enter(contended_region);
        status[1] = annals_point(contended_point);
        status[2] = annals_leave(contended_region);
        status[3] = annals_add_region(contended, "another", &region);
        status[4] = annals_read_statistics(contended, &statistics);
        status[5] = annals_apply(contended, "sample 2 event nothing");
        for (n = 0; n < 6; n++)
            wrong += status[n] != ANNALS_OK && status[n] != ANNALS_ERROR_FINISHED &&
                     status[n] != ANNALS_ERROR_HANDLE;
    }
    return (void *)wrong;
}

static void from_many_threads(void)
{
    int round, n;
    for (round = 0; round < 10; round++) {
        annals_event_type_spec spec = spec_of("point", NULL, 0);
        pthread_t threads[6];
        contended = start();
        is_over = 0;
        EXPECT(OK, annals_add_event_type(contended, &spec, &contended_point));
        EXPECT(OK, annals_add_region(contended, "contended", &contended_region));
        for (n = 0; n < 6; n++)
            pthread_create(&threads[n], NULL, contend, NULL);
        usleep(10000);
        if (round % 2)
            EXPECT(OK, annals_finish(contended, NULL));
        EXPECT(OK, annals_free(contended));
        usleep(2000);
        __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
        for (n = 0; n < 6; n++) {
            void *wrong;
            pthread_join(threads[n], &wrong);
            CHECK(wrong == NULL);
        }
    }
}

/* Children that were forked while other threads were in the library. */
static void after_fork(void)
{
    annals_event_type_spec spec = spec_of("point", NULL, 0);
    annals_source source;
    pthread_t threads[3];
    int round, n;

    contended = start();
    is_over = 0;
    EXPECT(OK, annals_add_event_type(contended, &spec, &contended_point));
    EXPECT(OK, annals_add_region(contended, "contended", &contended_region));
    EXPECT(OK, annals_threads(contended, &source));
    EXPECT(OK, annals_enter(contended_region));
    for (n = 0; n < 3; n++)
        pthread_create(&threads[n], NULL, contend, NULL);
    for (round = 0; round < 20; round++) {
        int status = -1;
        pid_t child;
        fflush(stdout);
        child = fork();
        if (child == 0) {
            annals_recorder own;
            annals_region region;
            failures = 0;
            alarm(20);
            refuse_events(source.bits, contended_point.bits, contended_region.bits,
                          ANNALS_ERROR_FORKED);
            refuse_recorder(contended, ANNALS_ERROR_FORKED);
            EXPECT(ERROR_FORKED, annals_finish(contended, NULL));
            CHECK(statistics_of(contended).is_finished == 1);
            EXPECT(OK, annals_free(contended));
            refuse_recorder(contended, ANNALS_ERROR_HANDLE);
            own = start();
            EXPECT(OK, annals_add_region(own, "child", &region));
            EXPECT(OK, annals_enter(region));
            EXPECT(OK, annals_leave(region));
            EXPECT(OK, annals_finish(own, NULL));
            EXPECT(OK, annals_free(own));
            fflush(stdout);
            _exit(failures != 0);
        }
        waitpid(child, &status, 0);
        CHECK(status == 0);
    }
    EXPECT(OK, annals_leave(contended_region));
    EXPECT(OK, annals_finish(contended, NULL));
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    for (n = 0; n < 3; n++)
        pthread_join(threads[n], NULL);
    EXPECT(OK, annals_free(contended));
}

static void too_many(void)
{
    annals_recorder recorders[100];
    annals_recorder more;
    int n = 0;
    const annals_setting settings[] = {{"ANNALS_DIR", directory}, {"ANNALS_BUFFER", "256K"}};
    while (n < 100 && annals_start(settings, 2, 0, &recorders[n]) == ANNALS_OK)
        n++;
    CHECK(n >= 60 && n < 100);
    EXPECT(ERROR_FULL, annals_start(settings, 2, 0, &more));
    while (n > 0)
        EXPECT(OK, annals_free(recorders[--n]));
    EXPECT(OK, annals_start(settings, 2, 0, &more));
    EXPECT(OK, annals_free(more));
}

int main(int argc, char **argv)
{
    annals_recorder recorder;
    if (argc != 2)
        return 2;
    directory = argv[1];
    CHECK(annals_last_error()[0] == '\0');
    recorder = start();
    null_pointers(recorder);
    bad_definitions(recorder);
    bad_values(recorder);
    wrong_handles(recorder);
    EXPECT(OK, annals_finish(recorder, NULL));
    EXPECT(OK, annals_free(recorder));
    after_finish();
    from_a_clock();
    from_a_handler();
    from_many_threads();
    after_fork();
    too_many();
    printf("%d wrong\n", failures);
    return failures != 0;
}
