/* A producer, and a recorder that is attached to it: `attach DIRECTORY`. */
#include <annals_t.h>

#include <stdio.h>
#include <string.h>

static int wrong;

#define EXPECT(call, expected)                                                                         \
    do {                                                                                               \
        const int got = (int)(call);                                                                   \
        if (got != (int)(expected)) {                                                                  \
            fprintf(stderr, "%d: %s gives %d: %s\n", __LINE__, #call, got, annals_last_error());       \
            wrong++;                                                                                   \
        }                                                                                              \
    } while (0)

int main(int argc, char **argv) {
    const annals_setting setting = {"ANNALS_DIR", argv[argc - 1]};
    static const char *const names[] = {"bytes", "ratio"};
    static const annals_t_datatype types[] = {ANNALS_T_INT, ANNALS_T_DOUBLE};
    static const char *const events[] = {"se*", "rare", NULL}, *const pvars[] = {"queue", NULL};
    static const char *const rare_only[] = {"rare", NULL}, *const bad[] = {"[", NULL};
    const int32_t limit = 4096;
    struct {
        int32_t bytes;
        double ratio;
    } payload = {0, 0.5};
    annals_recorder recorder, none = {0};
    annals_t_source source;
    annals_t_event_type sent, left_out, rare;
    annals_t_pvar queue;
    annals_t_attachment attachment = ANNALS_T_ATTACHMENT_NULL, gone;
    annals_t_attach_spec spec = {.size = sizeof spec, .events = events, .pvars = pvars, .sample_at = rare_only};
    uint64_t level = 5;
    char text[64] = "x";
    int index, length = sizeof text;

    EXPECT(annals_start(&setting, 1, ANNALS_ENVIRONMENT_IGNORED, &recorder), ANNALS_OK);
    EXPECT(annals_t_add_source("network", NULL, ANNALS_T_SOURCE_UNORDERED, 1000000000, 0, NULL, NULL, 0, 0,
                               &source), 0);
    EXPECT(annals_t_add_event_type("sent", NULL, 0, 2, names, types, NULL, 0, &sent), 0);
    EXPECT(annals_t_add_event_type("left out", NULL, 0, 2, names, types, NULL, 0, &left_out), 0);
    EXPECT(annals_t_add_pvar("queue", 0, ANNALS_T_PVAR_CLASS_LEVEL, ANNALS_T_UNSIGNED_LONG, ANNALS_T_ENUM_NULL,
                             NULL, 0, 0, 0, 1, 1, NULL, NULL, &queue), 0);
    EXPECT(annals_t_add_cvar("eager limit", 0, ANNALS_T_INT, ANNALS_T_ENUM_NULL, NULL, 0, ANNALS_T_SCOPE_LOCAL,
                             1, &limit, NULL, NULL, NULL, &index), 0);

    /* What is no attachment. */
    EXPECT(annals_t_attach(recorder, &spec, NULL), ANNALS_T_ERR_INVALID);
    EXPECT(annals_t_attach(none, &spec, &attachment), ANNALS_T_ERR_INVALID_HANDLE);
    spec.size = 3;
    EXPECT(annals_t_attach(recorder, &spec, &attachment), ANNALS_T_ERR_INVALID);
    spec.size = sizeof spec;
    spec.events = bad;
    EXPECT(annals_t_attach(recorder, &spec, &attachment), ANNALS_T_ERR_INVALID);
    EXPECT(annals_t_detach(&attachment), ANNALS_T_ERR_INVALID_HANDLE);
    EXPECT(annals_t_detach(NULL), ANNALS_T_ERR_INVALID);
    EXPECT(annals_t_attachment_sample(attachment), ANNALS_T_ERR_INVALID_HANDLE);
    EXPECT(annals_t_attachment_look((annals_t_attachment)~(uintptr_t)0), ANNALS_T_ERR_INVALID_HANDLE);

    spec.events = events;
    EXPECT(annals_t_attach(recorder, &spec, &attachment), 0);
    /* Added later, and recorded all the same. */
    EXPECT(annals_t_add_event_type("rare", NULL, 0, 0, NULL, NULL, NULL, 0, &rare), 0);
    EXPECT(annals_t_is_wanted(sent), 1);
    EXPECT(annals_t_is_wanted(left_out), 0);
    for (annals_t_count time = 7; time < 10; time++) {
        payload.bytes = (int32_t)time;
        EXPECT(annals_t_raise(sent, source, ANNALS_T_CB_REQUIRE_NONE, &time, NULL, &payload), 0);
        EXPECT(annals_t_raise(left_out, source, ANNALS_T_CB_REQUIRE_NONE, &time, NULL, &payload), 0);
    }
    annals_t_count time = 20;
    EXPECT(annals_t_raise(rare, source, ANNALS_T_CB_REQUIRE_NONE, &time, NULL, NULL), 0);
    EXPECT(annals_t_pvar_set(queue, 0, &level), 0);
    EXPECT(annals_t_attachment_look(attachment), 0);
    EXPECT(annals_t_attachment_sample(attachment), 0);
    EXPECT(annals_t_report_dropped(sent, source, NULL, 3), 0);
    EXPECT(annals_t_attachment_problems(attachment, text, &length), 0);
    EXPECT(length, 1);
    EXPECT(strlen(text), 0);
    gone = attachment;
    EXPECT(annals_t_detach(&attachment), 0);
    EXPECT(attachment == ANNALS_T_ATTACHMENT_NULL, 1);
    EXPECT(annals_t_detach(&gone), ANNALS_T_ERR_INVALID_HANDLE);
    EXPECT(annals_t_is_wanted(sent), 0);
    EXPECT(annals_finish(recorder, NULL), ANNALS_OK);
    EXPECT(annals_t_attach(recorder, NULL, &attachment), ANNALS_T_ERR_INVALID_HANDLE);
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
