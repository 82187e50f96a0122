/* The loops of benches/c_path.rs in C. */
#include <annals.h>

static annals_region region;
static annals_event_type three, six, text;

int c_path_start(const char *directory)
{
    const annals_setting setting = {"ANNALS_DIR", directory};
    const annals_element elements[] = {
        {.name = "a", .type = ANNALS_TYPE_U32}, {.name = "b", .type = ANNALS_TYPE_U32},
        {.name = "c", .type = ANNALS_TYPE_U64},
    };
    const annals_element more[] = {
        {.name = "a", .type = ANNALS_TYPE_U32}, {.name = "b", .type = ANNALS_TYPE_U32},
        {.name = "c", .type = ANNALS_TYPE_U32}, {.name = "d", .type = ANNALS_TYPE_U64},
        {.name = "e", .type = ANNALS_TYPE_U64}, {.name = "f", .type = ANNALS_TYPE_U32},
    };
    const annals_element texts[] = {{.name = "text", .type = ANNALS_TYPE_STRING}};
    const annals_event_type_spec specs[] = {
        {.size = sizeof specs[0], .name = "three", .elements = elements, .element_count = 3},
        {.size = sizeof specs[0], .name = "six", .elements = more, .element_count = 6},
        {.size = sizeof specs[0], .name = "text", .elements = texts, .element_count = 1},
    };
    annals_recorder recorder;
    return annals_start(&setting, 1, ANNALS_ENVIRONMENT_IGNORED, &recorder) ||
           annals_add_region(recorder, "region", &region) ||
           annals_add_event_type(recorder, &specs[0], &three) ||
           annals_add_event_type(recorder, &specs[1], &six) ||
           annals_add_event_type(recorder, &specs[2], &text);
}

static inline uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A value that the compiler knows nothing of, by way of memory, as Rust's black_box has it. */
static inline uint64_t opaque(uint64_t value)
{
    __asm__ volatile("" : : "r"(&value) : "memory");
    return value;
}

static inline void work(uint64_t word)
{
    uint64_t value = word, n;
    for (n = 0; n < word % 16; n++)
        value = opaque((value << 5 | value >> 59) ^ word);
}

#define LOOP(name, ...)                                                                            \
    void c_path_##name(uint64_t calls)                                                             \
    {                                                                                              \
        uint64_t random = 88172645463325252u, call;                                                \
        for (call = 0; call < calls; call++) {                                                     \
            uint64_t word = next(&random);                                                         \
            work(word);                                                                            \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

LOOP(empty, opaque(word);)
LOOP(pair, annals_enter(region); work(word >> 20); annals_leave(region);)
LOOP(three, {
    annals_value values[] = {annals_u32((uint32_t)word >> 20 & 7), annals_u32(42), annals_u64(4096)};
    annals_raise(three, values, 3);
})
LOOP(six, {
    annals_value values[] = {annals_u32((uint32_t)word & 63), annals_u32(0),
                             annals_u32((uint32_t)word >> 8 & 3), annals_u64(4096),
                             annals_u64(call), annals_u32(3)};
    annals_raise(six, values, 6);
})
LOOP(text, {
    annals_value value = annals_string("state changed");
    annals_raise(text, &value, 1);
})
