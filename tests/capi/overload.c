/* What becomes of events when there is no room, or before any tool asks for them: `overload WHAT DIRECTORY`.
 * Prints what the recorder reports. */
#include <annals.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static annals_recorder recorder;
static annals_event_type alarm_type;

static void must(annals_status status, int line) {
    if (status != ANNALS_OK) {
        fprintf(stderr, "%d: %s: %s\n", line, annals_status_text(status), annals_last_error());
        exit(1);
    }
}
#define MUST(call) must(call, __LINE__)

static annals_statistics statistics(void) {
    annals_statistics now = {.size = sizeof now};
    MUST(annals_read_statistics(recorder, &now));
    return now;
}

static void raise_alarm(uint32_t level) {
    const annals_value values[] = {annals_u32(level), annals_u64(level * 0x9e3779b97f4a7c15u)};
    MUST(annals_raise(alarm_type, values, 2));
}

/* Waits for the writer, at most ten seconds. */
static uint64_t snapshots(uint64_t expected) {
    const struct timespec nap = {0, 1000000};
    for (int i = 0; i < 10000 && statistics().snapshots < expected; i++)
        nanosleep(&nap, NULL);
    return statistics().snapshots;
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    const annals_setting settings[] = {
        {"ANNALS_DIR", argv[argc - 1]},
        {"ANNALS_BUFFER", "512K"},
        {"ANNALS_PAGE", "4K"},
        {"ANNALS_OVERFLOW", !strcmp(what, "drop") ? "drop" : ""},
        {"ANNALS_TRIGGER", !strcmp(what, "trigger") ? "event alarm where level >= 7; signal SIGUSR2" : ""},
    };
    const annals_setting overwrite[] = {settings[0], settings[1], settings[2], {"ANNALS_OVERFLOW", "overwrite"}};
    const annals_element elements[] = {{.name = "level", .type = ANNALS_TYPE_U32},
                                       {.name = "noise", .type = ANNALS_TYPE_U64}};
    const annals_event_type_spec spec = {
        .size = sizeof spec, .name = "alarm", .elements = elements, .element_count = 2};
    const int by_call = !strcmp(what, "snapshot");
    const int flush_signal = !strcmp(what, "flush") ? SIGUSR1 : !strcmp(what, "end") ? SIGTERM : 0;
    const annals_setting flush[] = {settings[0], settings[1], settings[2], {"ANNALS_FLUSH", "0s"},
                                    {"ANNALS_FLUSH_SIGNAL", "SIGUSR1, SIGTERM"}};
    annals_statistics end = {.size = sizeof end};

    MUST(annals_start(by_call ? overwrite : flush_signal ? flush : settings, by_call ? 4 : 5,
                      ANNALS_ENVIRONMENT_IGNORED, &recorder));
    MUST(annals_add_event_type(recorder, &spec, &alarm_type));
    if (!strcmp(what, "drop")) {
        /* Until the writer is too slow. */
        for (uint32_t i = 0; i < 50000 && statistics().dropped == 0; i++)
            for (uint32_t j = 0; j < 1000; j++)
                raise_alarm(i * 1000 + j);
    } else if (flush_signal) {
        const struct timespec nap = {0, 1000000};
        const uint64_t written = statistics().written_bytes;
        for (uint32_t i = 0; i < 100; i++)
            raise_alarm(i);
        raise(flush_signal);
        /* A signal that ends programs does so while this waits. */
        for (int i = 0; i < 10000 && statistics().written_bytes < written + 700; i++)
            nanosleep(&nap, NULL);
        if (flush_signal == SIGTERM)
            nanosleep(&(struct timespec){10, 0}, NULL);
        printf("it goes on\n");
        fflush(stdout);
        raise_alarm(100);
        raise(SIGKILL);
    } else if (by_call) {
        char path[4096];
        size_t length = 0;
        for (uint32_t i = 0; i < 100; i++)
            raise_alarm(i);
        MUST(annals_snapshot(recorder, path, sizeof path, &length));
        printf("%s\n", strlen(path) == length ? path : "another length");
        raise_alarm(100);
    } else {
        for (uint32_t level = 1; level < 7; level++)
            raise_alarm(level);
        printf("%d before\n", (int)statistics().snapshots);
        raise_alarm(7);
        printf("%d by an event\n", (int)snapshots(1));
        raise(SIGUSR2);
        printf("%d by a signal\n", (int)snapshots(2));
    }
    MUST(annals_finish(recorder, &end));
    printf("raised %llu, dropped %llu\n", (unsigned long long)end.raised, (unsigned long long)end.dropped);
    MUST(annals_free(recorder));
    return 0;
}
