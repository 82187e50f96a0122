/* A host for Kokkos Tools: loads the first library that KOKKOS_TOOLS_LIBS names, as Kokkos does, and calls what it has.
 *
 *     kokkos [VERSION]      of the interface */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char name[64]; } Space;
typedef struct { _Bool requires_global_fencing, padding[255]; } Settings;

static void *tool;

#define CALL(name, type, ...) \
    do { \
        void(*call) type = (void(*) type)dlsym(tool, "kokkosp_" #name); \
        if (!call) abort(); \
        call(__VA_ARGS__); \
    } while (0)

static void kernel(const char *name) {
    uint64_t id = 0;
    CALL(begin_parallel_for, (const char *, uint32_t, uint64_t *), name, 3, &id);
    CALL(end_parallel_for, (uint64_t), id);
}

int main(int argc, char **argv) {
    const char *list = getenv("KOKKOS_TOOLS_LIBS");
    if (!list) return 2;
    char *first = strdup(list);
    first[strcspn(first, ";")] = 0;
    tool = dlopen(first, RTLD_NOW | RTLD_GLOBAL);
    if (!tool) return 3;
    uint64_t version = argc > 1 ? strtoull(argv[1], NULL, 10) : 20211015;
    Settings settings = {1, {0}};
    CALL(request_tool_settings, (uint32_t, Settings *), 1, &settings);
    if (settings.requires_global_fencing) return 4;
    CALL(init_library, (int, uint64_t, uint32_t, void *), 0, version, 0, NULL);
    CALL(declare_metadata, (const char *, const char *), "case", "stand-in");
    Space host = {"Host"}, device = {"Cuda"};
    double data[100];
    uint64_t id = 0;
    uint32_t section = 0;
    CALL(allocate_data, (Space, const char *, const void *, uint64_t), host, "field", data, sizeof data);
    CALL(create_profile_section, (const char *, uint32_t *), "all", &section);
    CALL(start_profile_section, (uint32_t), section);
    for (int step = 0; step < 5; step++) {
        CALL(push_profile_region, (const char *), "step");
        kernel("relax");
        /* A kernel in a kernel, as of a device that is a host. */
        uint64_t outer = 0;
        CALL(begin_parallel_reduce, (const char *, uint32_t, uint64_t *), "norm", 0, &outer);
        kernel("relax");
        CALL(end_parallel_reduce, (uint64_t), outer);
        CALL(begin_parallel_scan, (const char *, uint32_t, uint64_t *), "offsets", 0, &id);
        CALL(end_parallel_scan, (uint64_t), id);
        CALL(begin_deep_copy, (Space, const char *, const void *, Space, const char *, const void *, uint64_t), device, "mirror", data,
             host, "field", data, sizeof data);
        CALL(begin_fence, (const char *, uint32_t, uint64_t *), "after the copy", 0, &id);
        CALL(end_fence, (uint64_t), id);
        CALL(end_deep_copy, (void));
        CALL(profile_event, (const char *), "done");
        CALL(pop_profile_region, (void));
    }
    CALL(stop_profile_section, (uint32_t), section);
    CALL(destroy_profile_section, (uint32_t), section);
    CALL(deallocate_data, (Space, const char *, const void *, uint64_t), host, "field", data, sizeof data);
    CALL(finalize_library, (void));
    puts("done");
    return 0;
}
