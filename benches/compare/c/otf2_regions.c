/* The table of regions by way of OTF2's local readers: calls, inclusive and exclusive time, percentiles.
 *
 * usage: otf2_regions ANCHOR [PROCESSES]
 *
 * Each process reads the locations whose number is its own modulo PROCESSES (default 1), so that as many processors
 * are used. Prints region, calls, inclusive and exclusive ticks, least and greatest duration, p50, p95, p99, by tabs.
 */
#include <inttypes.h>
#include <otf2/otf2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUCKETS 1920
#define DEPTH 4096

struct region {
    uint64_t calls, inclusive, exclusive, least, greatest, completed;
    uint64_t buckets[BUCKETS];
};

static struct region *regions;
static uint32_t region_count;
static uint32_t *region_names;
static char **strings;
static uint32_t string_count;
static uint64_t *locations;
static uint64_t location_count;

static struct {
    uint32_t region;
    uint64_t entered;
} stack[DEPTH];
static unsigned depth;
static uint64_t last;

static void *grown(void *memory, uint32_t *count, uint32_t wanted, size_t size)
{
    if (wanted < *count)
        return memory;
    uint32_t more = wanted + wanted / 2 + 16;
    memory = realloc(memory, more * size);
    if (memory == NULL)
        abort();
    memset((char *)memory + *count * size, 0, (more - *count) * size);
    *count = more;
    return memory;
}

static OTF2_CallbackCode on_string(void *data, OTF2_StringRef self, const char *text)
{
    (void)data;
    strings = grown(strings, &string_count, self, sizeof *strings);
    strings[self] = strdup(text);
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode on_region(void *data, OTF2_RegionRef self, OTF2_StringRef name, OTF2_StringRef canonical,
                                   OTF2_StringRef description, OTF2_RegionRole role, OTF2_Paradigm paradigm,
                                   OTF2_RegionFlag flags, OTF2_StringRef file, uint32_t begin, uint32_t end)
{
    (void)data, (void)canonical, (void)description, (void)role, (void)paradigm, (void)flags, (void)file;
    (void)begin, (void)end;
    uint32_t count = region_count;
    regions = grown(regions, &count, self, sizeof *regions);
    region_names = grown(region_names, &region_count, self, sizeof *region_names);
    region_names[self] = name;
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode on_location(void *data, OTF2_LocationRef self, OTF2_StringRef name, OTF2_LocationType type,
                                     uint64_t events, OTF2_LocationGroupRef group)
{
    (void)data, (void)name, (void)type, (void)events, (void)group;
    if ((location_count & (location_count - 1)) == 0)
        locations = realloc(locations, 2 * (location_count + 1) * sizeof *locations);
    locations[location_count++] = self;
    return OTF2_CALLBACK_SUCCESS;
}

static unsigned bucket_of(uint64_t value)
{
    if (value < 64)
        return (unsigned)value;
    unsigned shift = 58 - (unsigned)__builtin_clzll(value);
    return shift * 32 + (unsigned)(value >> shift);
}

static uint64_t value_of(unsigned bucket)
{
    if (bucket < 64)
        return bucket;
    unsigned shift = bucket / 32 - 1;
    return ((uint64_t)(bucket - shift * 32) << shift) + ((uint64_t)1 << shift) / 2;
}

static inline void pass(uint64_t time)
{
    if (depth != 0)
        regions[stack[depth - 1].region].exclusive += time - last;
    last = time;
}

static inline int is_open(uint32_t region)
{
    for (unsigned at = depth; at-- != 0;)
        if (stack[at].region == region)
            return 1;
    return 0;
}

static OTF2_CallbackCode on_enter(OTF2_LocationRef location, OTF2_TimeStamp time, uint64_t position,
                                  void *data, OTF2_AttributeList *attributes, OTF2_RegionRef region)
{
    (void)location, (void)position, (void)data, (void)attributes;
    pass(time);
    regions[region].calls++;
    if (depth == DEPTH)
        abort();
    stack[depth].region = region;
    stack[depth++].entered = time;
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode on_leave(OTF2_LocationRef location, OTF2_TimeStamp time, uint64_t position,
                                  void *data, OTF2_AttributeList *attributes, OTF2_RegionRef region)
{
    (void)location, (void)position, (void)data, (void)attributes;
    pass(time);
    if (!is_open(region))
        return OTF2_CALLBACK_SUCCESS;
    for (;;) {
        uint32_t left = stack[--depth].region;
        uint64_t took = time - stack[depth].entered;
        struct region *of = &regions[left];
        if (!is_open(left))
            of->inclusive += took;
        if (left != region)
            continue;
        if (of->completed++ == 0)
            of->least = of->greatest = took;
        of->least = took < of->least ? took : of->least;
        of->greatest = took > of->greatest ? took : of->greatest;
        of->buckets[bucket_of(took)]++;
        return OTF2_CALLBACK_SUCCESS;
    }
}

static uint64_t percentile(const struct region *of, unsigned percent)
{
    uint64_t rank = (of->completed * percent + 99) / 100, passed = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        passed += of->buckets[bucket];
        if (passed >= rank && passed != 0) {
            uint64_t value = value_of(bucket);
            return value < of->least ? of->least : value > of->greatest ? of->greatest : value;
        }
    }
    return 0;
}

static OTF2_Reader *opened(const char *anchor)
{
    OTF2_Reader *reader = OTF2_Reader_Open(anchor);
    if (reader == NULL)
        exit(1);
    OTF2_Reader_SetSerialCollectiveCallbacks(reader);
    OTF2_GlobalDefReader *definitions = OTF2_Reader_GetGlobalDefReader(reader);
    OTF2_GlobalDefReaderCallbacks *callbacks = OTF2_GlobalDefReaderCallbacks_New();
    OTF2_GlobalDefReaderCallbacks_SetStringCallback(callbacks, on_string);
    OTF2_GlobalDefReaderCallbacks_SetRegionCallback(callbacks, on_region);
    OTF2_GlobalDefReaderCallbacks_SetLocationCallback(callbacks, on_location);
    OTF2_Reader_RegisterGlobalDefCallbacks(reader, definitions, callbacks, NULL);
    OTF2_GlobalDefReaderCallbacks_Delete(callbacks);
    uint64_t read;
    OTF2_Reader_ReadAllGlobalDefinitions(reader, definitions, &read);
    return reader;
}

static void read_locations(OTF2_Reader *reader, unsigned own, unsigned processes)
{
    for (uint64_t at = own; at < location_count; at += processes)
        OTF2_Reader_SelectLocation(reader, locations[at]);
    int has_definitions = OTF2_Reader_OpenDefFiles(reader) == OTF2_SUCCESS;
    OTF2_Reader_OpenEvtFiles(reader);
    OTF2_EvtReaderCallbacks *callbacks = OTF2_EvtReaderCallbacks_New();
    OTF2_EvtReaderCallbacks_SetEnterCallback(callbacks, on_enter);
    OTF2_EvtReaderCallbacks_SetLeaveCallback(callbacks, on_leave);
    for (uint64_t at = own; at < location_count; at += processes) {
        uint64_t read;
        OTF2_DefReader *local = has_definitions ? OTF2_Reader_GetDefReader(reader, locations[at]) : NULL;
        if (local != NULL) {
            OTF2_Reader_ReadAllLocalDefinitions(reader, local, &read);
            OTF2_Reader_CloseDefReader(reader, local);
        }
        OTF2_EvtReader *events = OTF2_Reader_GetEvtReader(reader, locations[at]);
        if (events == NULL)
            continue;
        depth = 0;
        OTF2_Reader_RegisterEvtCallbacks(reader, events, callbacks, NULL);
        OTF2_Reader_ReadAllLocalEvents(reader, events, &read);
        OTF2_Reader_CloseEvtReader(reader, events);
        /* What is open ends at the location's last enter or leave. */
        while (depth != 0) {
            uint32_t open = stack[--depth].region;
            if (!is_open(open))
                regions[open].inclusive += last - stack[depth].entered;
        }
    }
}

static void add(const struct region *other)
{
    for (uint32_t region = 0; region < region_count; region++, other++) {
        struct region *to = &regions[region];
        if (other->completed != 0) {
            int is_first = to->completed == 0;
            to->least = is_first || other->least < to->least ? other->least : to->least;
            to->greatest = is_first || other->greatest > to->greatest ? other->greatest : to->greatest;
        }
        to->calls += other->calls;
        to->inclusive += other->inclusive;
        to->exclusive += other->exclusive;
        to->completed += other->completed;
        for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
            to->buckets[bucket] += other->buckets[bucket];
    }
}

int main(int count, char **arguments)
{
    if (count < 2)
        return 2;
    unsigned processes = count > 2 ? (unsigned)atoi(arguments[2]) : 1;
    int pipes[64][2];
    if (processes < 1 || processes > 64)
        return 2;
    for (unsigned own = 1; own < processes; own++) {
        if (pipe(pipes[own]) != 0)
            return 1;
        if (fork() == 0) {
            read_locations(opened(arguments[1]), own, processes);
            size_t left = region_count * sizeof *regions;
            for (const char *next = (const char *)regions; left != 0;) {
                ssize_t wrote = write(pipes[own][1], next, left);
                if (wrote <= 0)
                    _exit(1);
                next += wrote;
                left -= (size_t)wrote;
            }
            _exit(0);
        }
        close(pipes[own][1]);
    }
    read_locations(opened(arguments[1]), 0, processes);
    struct region *other = malloc(region_count * sizeof *regions);
    for (unsigned own = 1; own < processes; own++) {
        size_t left = region_count * sizeof *regions;
        for (char *next = (char *)other; left != 0;) {
            ssize_t got = read(pipes[own][0], next, left);
            if (got <= 0)
                return 1;
            next += got;
            left -= (size_t)got;
        }
        add(other);
    }
    while (wait(NULL) > 0)
        continue;
    for (uint32_t region = 0; region < region_count; region++) {
        const struct region *of = &regions[region];
        if (of->calls != 0)
            printf("%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64
                   "\t%" PRIu64 "\n",
                   strings[region_names[region]], of->calls, of->inclusive, of->exclusive, of->least, of->greatest,
                   percentile(of, 50), percentile(of, 95), percentile(of, 99));
    }
    return 0;
}
