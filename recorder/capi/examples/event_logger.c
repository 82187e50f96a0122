/*
 * Logs events of the process: the types that EVENTS names (between commas, colons, semicolons or spaces).
 * Without it, prints at exit what sources and event types there are. A tool is linked or loaded into a
 * program that has a producer; so that there is something to see, this one brings its own.
 */
#include <annals_t.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXT = 128, ELEMENTS = 32 };

/* What the callback needs of an event type. */
struct type {
    char name[TEXT];
    int count;
    annals_t_datatype datatypes[ELEMENTS];
    char names[ELEMENTS][TEXT];
};

static double seconds_per_tick[64];

static void print_element(annals_t_event_instance instance, const struct type *type, int i) {
    union {
        int32_t i32;
        uint32_t u32;
        uint64_t u64;
        int64_t i64;
        char c;
        double f64;
    } value;
    if (annals_t_event_read(instance, i, &value) != ANNALS_T_SUCCESS)
        return;
    printf(" %s=", type->names[i]);
    switch (type->datatypes[i]) {
    case ANNALS_T_INT: printf("%" PRId32, value.i32); break;
    case ANNALS_T_UNSIGNED: printf("%" PRIu32, value.u32); break;
    case ANNALS_T_COUNT: printf("%" PRId64, value.i64); break;
    case ANNALS_T_CHAR: printf("%c", value.c); break;
    case ANNALS_T_DOUBLE: printf("%g", value.f64); break;
    default: printf("%" PRIu64, value.u64);
    }
}

/* One callback for all. It prints, and so is not registered for signal handlers. */
static void event(annals_t_event_instance instance, annals_t_event_registration registration,
                  annals_t_cb_safety safety, void *user_data) {
    const struct type *type = user_data;
    annals_t_count time = 0;
    int source = 0;
    (void)registration;
    (void)safety;
    annals_t_event_get_timestamp(instance, &time);
    annals_t_event_get_source(instance, &source);
    printf("[%13.9f] '%s'", (double)time * seconds_per_tick[source], type->name);
    for (int i = 0; i < type->count; i++)
        print_element(instance, type, i);
    printf("\n");
}

static void dropped(annals_t_count count, annals_t_event_registration registration, int source,
                    annals_t_cb_safety safety, void *user_data) {
    const struct type *type = user_data;
    (void)registration;
    (void)safety;
    printf("dropped %" PRId64 " of '%s' by source %d\n", count, type ? type->name : "?", source);
}

static void describe(int index, struct type *type) {
    int length = TEXT;
    annals_t_enum names = ANNALS_T_ENUM_NULL;
    type->count = ELEMENTS;
    annals_t_event_get_info(index, type->name, &length, NULL, type->datatypes, NULL, &type->count,
                            &names, NULL, NULL, NULL, NULL);
    if (type->count > ELEMENTS)
        type->count = ELEMENTS;
    for (int i = 0; i < type->count; i++) {
        int value, room = TEXT;
        if (annals_t_enum_get_item(names, i, &value, type->names[i], &room) != ANNALS_T_SUCCESS)
            snprintf(type->names[i], TEXT, "element%d", i);
    }
}

static void print_catalogue(void) {
    int sources = 0, events = 0;
    annals_t_source_get_num(&sources);
    annals_t_event_get_num(&events);
    for (int i = 0; i < sources; i++) {
        char name[TEXT], desc[TEXT];
        int name_length = TEXT, desc_length = TEXT;
        annals_t_source_order order;
        annals_t_count rate;
        annals_t_source_get_info(i, name, &name_length, desc, &desc_length, &order, &rate, NULL, NULL);
        printf("source %d '%s' (%s), %s, %" PRId64 " ticks a second\n", i, name, desc,
               order == ANNALS_T_SOURCE_ORDERED ? "ordered" : "unordered", rate);
    }
    for (int i = 0; i < events; i++) {
        struct type type;
        describe(i, &type);
        printf("event type %d '%s':", i, type.name);
        for (int e = 0; e < type.count; e++)
            printf(" %s", type.names[e]);
        printf("\n");
    }
}

static void listen_to(const char *name) {
    static const annals_t_cb_safety levels[] = {ANNALS_T_CB_REQUIRE_RESTRICTED, ANNALS_T_CB_REQUIRE_NONE};
    annals_t_event_registration registration;
    struct type *type;
    int index;
    if (annals_t_event_get_index(name, &index) != ANNALS_T_SUCCESS) {
        fprintf(stderr, "no event type '%s'\n", name);
        return;
    }
    type = calloc(1, sizeof *type);
    if (!type)
        return;
    describe(index, type);
    if (annals_t_event_handle_alloc(index, NULL, ANNALS_T_INFO_NULL, &registration) != ANNALS_T_SUCCESS)
        return;
    annals_t_event_set_dropped_handler(registration, dropped);
    for (int i = 0; i < 2; i++)
        annals_t_event_register_callback(registration, levels[i], ANNALS_T_INFO_NULL, type, event);
}

static void start_logging(void) {
    int provided, sources = 0;
    char *wanted = getenv("EVENTS");
    annals_t_init_thread(ANNALS_T_THREAD_MULTIPLE, &provided);
    annals_t_source_get_num(&sources);
    for (int i = 0; i < sources && i < 64; i++) {
        annals_t_count rate = 1;
        annals_t_source_get_info(i, NULL, NULL, NULL, NULL, NULL, &rate, NULL, NULL);
        seconds_per_tick[i] = 1.0 / (double)rate;
    }
    if (!wanted || !*wanted) {
        atexit(print_catalogue);
        return;
    }
    wanted = strdup(wanted);
    for (char *name = strtok(wanted, ",:; "); name; name = strtok(NULL, ",:; "))
        listen_to(name);
    free(wanted);
}

/* The producer: messages that arrive. */

static int64_t now(void *data) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec - *(int64_t *)data;
}

int main(void) {
    static const char *const names[] = {"context_id", "source", "tag", "sequence_number"};
    static const annals_t_datatype types[] = {ANNALS_T_INT, ANNALS_T_INT, ANNALS_T_INT, ANNALS_T_UNSIGNED_LONG};
    static int64_t start = 0;
    annals_t_source network;
    annals_t_event_type arrived;
    start = now(&start);
    annals_t_add_source("network", "messages", ANNALS_T_SOURCE_ORDERED, 1000000000, 0, now, &start, 0, 0,
                        &network);
    annals_t_add_event_type("pml_ob1_message_arrived", "a message came in", ANNALS_T_VERBOSITY_TUNER_BASIC,
                            4, names, types, NULL, ANNALS_T_BIND_NO_OBJECT, &arrived);
    start_logging();
    for (int i = 0; i < 3; i++) {
        const struct {
            int32_t context_id, source, tag;
            uint64_t sequence_number;
        } message = {0, i, 201, 10 + (uint64_t)i};
        /* As if the second was raised in a signal handler: there is no registration for that. */
        int safety = i == 1 ? ANNALS_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE : ANNALS_T_CB_REQUIRE_NONE;
        annals_t_raise(arrived, network, safety, NULL, NULL, &message);
    }
    return 0;
}
