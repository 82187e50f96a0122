#include "otf2.h"

#include <otf2/otf2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static char last_error[256];

const char *compare_otf2_error(void) { return last_error; }

static bool failed(OTF2_ErrorCode code, const char *what) {
    if (code == OTF2_SUCCESS) {
        return false;
    }
    snprintf(last_error, sizeof last_error, "%s: %s", what, OTF2_Error_GetDescription(code));
    return true;
}

struct chunk {
    struct chunk *next;
    void *memory;
    uint64_t bytes;
    uint64_t number;
    bool is_mapped;
};

/* One pool a location: no lock is needed, a location belongs to one thread. */
static char *pools[COMPARE_OTF2_LANES];
static uint64_t pool_used[COMPARE_OTF2_LANES];

struct compare_otf2 {
    OTF2_Archive *archive;
    OTF2_EvtWriter *writers[COMPARE_OTF2_LANES];
    OTF2_AttributeList *attributes[COMPARE_OTF2_LANES];
    uint32_t lanes;
    bool fresh;
};

/* OTF2 asks here for each chunk. When this returns NULL it asks the pre-flush callback, writes all
 * chunks to the file, hands them back through free_all, and asks again: so a pool of chunks that
 * are all touched makes a writer that never meets a fresh page, and its flush is the normal one. */
static void *allocate(void *user, OTF2_FileType type, OTF2_LocationRef location, void **per_buffer,
                      uint64_t bytes) {
    struct compare_otf2 *self = user;
    bool is_event = type == OTF2_FILETYPE_EVENTS && location < COMPARE_OTF2_LANES;
    if (is_event && !self->fresh) {
        uint64_t used = pool_used[location];
        if (used == COMPARE_OTF2_CHUNKS || bytes != COMPARE_OTF2_CHUNK_BYTES) {
            return NULL;
        }
        pool_used[location] = used + 1;
        return pools[location] + used * bytes;
    }
    struct chunk *first = *per_buffer;
    if (is_event && first != NULL && first->number + 1 == COMPARE_OTF2_CHUNKS) {
        return NULL;
    }
    struct chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL) {
        return NULL;
    }
    chunk->next = first;
    chunk->number = first == NULL ? 0 : first->number + 1;
    chunk->bytes = bytes;
    chunk->is_mapped = is_event;
    if (is_event) {
        /* malloc would hand out memory that an earlier archive had touched. */
        chunk->memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk->memory == MAP_FAILED) {
            chunk->memory = NULL;
        }
    } else {
        chunk->memory = malloc(bytes);
    }
    if (chunk->memory == NULL) {
        free(chunk);
        return NULL;
    }
    *per_buffer = chunk;
    return chunk->memory;
}

static void free_all(void *user, OTF2_FileType type, OTF2_LocationRef location, void **per_buffer,
                     bool final) {
    (void)final;
    struct compare_otf2 *self = user;
    if (type == OTF2_FILETYPE_EVENTS && location < COMPARE_OTF2_LANES && !self->fresh) {
        pool_used[location] = 0;
        return;
    }
    struct chunk *chunk = *per_buffer;
    while (chunk != NULL) {
        struct chunk *next = chunk->next;
        if (chunk->is_mapped) {
            munmap(chunk->memory, chunk->bytes);
        } else {
            free(chunk->memory);
        }
        free(chunk);
        chunk = next;
    }
    *per_buffer = NULL;
}

static OTF2_FlushType pre_flush(void *user, OTF2_FileType type, OTF2_LocationRef location,
                                void *caller, bool final) {
    (void)user, (void)type, (void)location, (void)caller, (void)final;
    return OTF2_FLUSH;
}

/* No post-flush callback: OTF2 then writes no record about the flush. */
static const OTF2_FlushCallbacks flush_callbacks = {.otf2_pre_flush = pre_flush};
static const OTF2_MemoryCallbacks memory_callbacks = {allocate, free_all};

static bool touch_pools(uint32_t lanes) {
    size_t bytes = (size_t)COMPARE_OTF2_CHUNKS * COMPARE_OTF2_CHUNK_BYTES;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        if (pools[lane] == NULL) {
            pools[lane] = aligned_alloc(4096, bytes);
            if (pools[lane] == NULL) {
                snprintf(last_error, sizeof last_error, "no memory for the chunk pool");
                return false;
            }
            memset(pools[lane], 1, bytes);
        }
        pool_used[lane] = 0;
    }
    return true;
}

struct compare_otf2 *compare_otf2_open(const char *directory, uint32_t lanes, int fresh) {
    struct compare_otf2 *self = calloc(1, sizeof *self);
    if (self == NULL || lanes > COMPARE_OTF2_LANES || !touch_pools(lanes)) {
        free(self);
        return NULL;
    }
    self->lanes = lanes;
    self->fresh = fresh != 0;
    self->archive = OTF2_Archive_Open(directory, "trace", OTF2_FILEMODE_WRITE,
                                      COMPARE_OTF2_CHUNK_BYTES, OTF2_CHUNK_SIZE_DEFINITIONS_DEFAULT,
                                      OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
    if (self->archive == NULL) {
        snprintf(last_error, sizeof last_error, "OTF2_Archive_Open in %s failed", directory);
        free(self);
        return NULL;
    }
    OTF2_Archive *archive = self->archive;
    if (failed(OTF2_Archive_SetFlushCallbacks(archive, &flush_callbacks, self), "flush callbacks") ||
        failed(OTF2_Archive_SetMemoryCallbacks(archive, &memory_callbacks, self),
               "memory callbacks") ||
        failed(OTF2_Archive_SetSerialCollectiveCallbacks(archive), "collective callbacks") ||
        failed(OTF2_Archive_OpenEvtFiles(archive), "OpenEvtFiles")) {
        return NULL;
    }
    for (uint32_t lane = 0; lane < lanes; lane++) {
        self->writers[lane] = OTF2_Archive_GetEvtWriter(archive, lane);
        self->attributes[lane] = OTF2_AttributeList_New();
        if (self->writers[lane] == NULL || self->attributes[lane] == NULL) {
            snprintf(last_error, sizeof last_error, "OTF2_Archive_GetEvtWriter failed");
            return NULL;
        }
    }
    return self;
}

void *compare_otf2_writer(struct compare_otf2 *self, uint32_t lane) { return self->writers[lane]; }

void *compare_otf2_attributes(struct compare_otf2 *self, uint32_t lane) {
    return self->attributes[lane];
}

/* String 0 is empty, 1 to 64 are the regions' names, 65 is used for every other name. */
static bool define(struct compare_otf2 *self, const uint64_t *events) {
    OTF2_GlobalDefWriter *w = OTF2_Archive_GetGlobalDefWriter(self->archive);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const OTF2_StringRef other = COMPARE_OTF2_REGIONS + 1;
    bool bad = w == NULL;
    /* Ticks per second: these times are never read as seconds. */
    bad = bad || OTF2_GlobalDefWriter_WriteClockProperties(
                     w, 1000000000, 0, UINT64_MAX / 2, (uint64_t)now.tv_sec * 1000000000);
    bad = bad || OTF2_GlobalDefWriter_WriteString(w, 0, "");
    bad = bad || OTF2_GlobalDefWriter_WriteString(w, other, "state changed");
    for (uint32_t region = 0; region < COMPARE_OTF2_REGIONS && !bad; region++) {
        char name[16];
        snprintf(name, sizeof name, "region %u", region);
        bad = OTF2_GlobalDefWriter_WriteString(w, region + 1, name) ||
              OTF2_GlobalDefWriter_WriteRegion(w, region, region + 1, region + 1, 0,
                                               OTF2_REGION_ROLE_FUNCTION, OTF2_PARADIGM_USER,
                                               OTF2_REGION_FLAG_NONE, 0, 0, 0);
    }
    bad = bad || OTF2_GlobalDefWriter_WriteSystemTreeNode(w, 0, other, other,
                                                          OTF2_UNDEFINED_SYSTEM_TREE_NODE);
    bad = bad || OTF2_GlobalDefWriter_WriteLocationGroup(w, 0, other,
                                                         OTF2_LOCATION_GROUP_TYPE_PROCESS, 0,
                                                         OTF2_UNDEFINED_LOCATION_GROUP);
    for (uint32_t lane = 0; lane < self->lanes; lane++) {
        bad = bad || OTF2_GlobalDefWriter_WriteLocation(
                         w, lane, other, OTF2_LOCATION_TYPE_CPU_THREAD, events[lane], 0);
    }
    const uint64_t members[] = {0};
    bad = bad || OTF2_GlobalDefWriter_WriteGroup(w, 0, other, OTF2_GROUP_TYPE_COMM_LOCATIONS,
                                                 OTF2_PARADIGM_MPI, OTF2_GROUP_FLAG_NONE, 1,
                                                 members);
    bad = bad || OTF2_GlobalDefWriter_WriteGroup(w, 1, other, OTF2_GROUP_TYPE_COMM_GROUP,
                                                 OTF2_PARADIGM_MPI, OTF2_GROUP_FLAG_NONE, 1,
                                                 members);
    for (uint32_t comm = 0; comm < 2; comm++) {
        bad = bad || OTF2_GlobalDefWriter_WriteComm(w, comm, other, 1, OTF2_UNDEFINED_COMM,
                                                    OTF2_COMM_FLAG_NONE);
    }
    for (uint32_t win = 0; win < 8; win++) {
        bad = bad ||
              OTF2_GlobalDefWriter_WriteRmaWin(w, win, other, 0, OTF2_RMA_WIN_FLAG_NONE);
    }
    for (uint32_t parameter = 0; parameter < 4; parameter++) {
        bad = bad ||
              OTF2_GlobalDefWriter_WriteParameter(w, parameter, other, OTF2_PARAMETER_TYPE_UINT64);
    }
    bad = bad || OTF2_GlobalDefWriter_WriteParameter(w, 4, other, OTF2_PARAMETER_TYPE_STRING);
    bad = bad || OTF2_GlobalDefWriter_WriteAttribute(w, 0, other, other, OTF2_TYPE_UINT64);
    bad = bad || OTF2_GlobalDefWriter_WriteAttribute(w, 1, other, other, OTF2_TYPE_UINT32);
    const OTF2_Type types[] = {OTF2_TYPE_INT64, OTF2_TYPE_DOUBLE};
    for (OTF2_MetricMemberRef metric = 0; metric < 2; metric++) {
        bad = bad || OTF2_GlobalDefWriter_WriteMetricMember(
                         w, metric, other, other, OTF2_METRIC_TYPE_USER,
                         OTF2_METRIC_ABSOLUTE_POINT, types[metric], OTF2_BASE_DECIMAL, 0, other);
        bad = bad || OTF2_GlobalDefWriter_WriteMetricClass(w, metric, 1, &metric,
                                                           OTF2_METRIC_ASYNCHRONOUS,
                                                           OTF2_RECORDER_KIND_CPU);
    }
    if (bad) {
        snprintf(last_error, sizeof last_error, "the definitions could not be written");
    }
    return !bad;
}

int64_t compare_otf2_close(struct compare_otf2 *self) {
    OTF2_Archive *archive = self->archive;
    uint64_t events[COMPARE_OTF2_LANES] = {0};
    int64_t sum = 0;
    bool bad = false;
    for (uint32_t lane = 0; lane < self->lanes; lane++) {
        bad |= failed(OTF2_EvtWriter_GetNumberOfEvents(self->writers[lane], &events[lane]),
                      "GetNumberOfEvents");
        bad |= failed(OTF2_Archive_CloseEvtWriter(archive, self->writers[lane]), "CloseEvtWriter");
        OTF2_AttributeList_Delete(self->attributes[lane]);
        sum += (int64_t)events[lane];
    }
    bad |= failed(OTF2_Archive_CloseEvtFiles(archive), "CloseEvtFiles");
    /* Readers expect a file of local definitions for each location. */
    bad |= failed(OTF2_Archive_OpenDefFiles(archive), "OpenDefFiles");
    for (uint32_t lane = 0; lane < self->lanes; lane++) {
        OTF2_DefWriter *writer = OTF2_Archive_GetDefWriter(archive, lane);
        bad |= failed(OTF2_Archive_CloseDefWriter(archive, writer), "CloseDefWriter");
    }
    bad |= failed(OTF2_Archive_CloseDefFiles(archive), "CloseDefFiles");
    bad |= !define(self, events);
    bad |= failed(OTF2_Archive_Close(archive), "OTF2_Archive_Close");
    free(self);
    return bad ? -1 : sum;
}

int64_t compare_otf2_read(const char *anchor, uint32_t lanes) {
    OTF2_Reader *reader = OTF2_Reader_Open(anchor);
    if (reader == NULL) {
        snprintf(last_error, sizeof last_error, "OTF2_Reader_Open of %s failed", anchor);
        return -1;
    }
    uint64_t definitions = 0;
    int64_t sum = 0;
    bool bad = failed(OTF2_Reader_SetSerialCollectiveCallbacks(reader), "collective callbacks");
    for (uint32_t lane = 0; lane < lanes; lane++) {
        bad |= failed(OTF2_Reader_SelectLocation(reader, lane), "SelectLocation");
    }
    bad |= failed(OTF2_Reader_OpenEvtFiles(reader), "OpenEvtFiles");
    OTF2_GlobalDefReader *global = OTF2_Reader_GetGlobalDefReader(reader);
    bad |= failed(OTF2_Reader_ReadAllGlobalDefinitions(reader, global, &definitions),
                  "the definitions");
    for (uint32_t lane = 0; lane < lanes && !bad; lane++) {
        uint64_t events = 0;
        OTF2_EvtReader *reader_of_lane = OTF2_Reader_GetEvtReader(reader, lane);
        bad |= failed(OTF2_Reader_ReadAllLocalEvents(reader, reader_of_lane, &events),
                      "reading events");
        sum += (int64_t)events;
    }
    OTF2_Reader_Close(reader);
    return bad ? -1 : sum;
}
