/* An archive of a run of many locations, and the reference library's global reader over it. */
#include <otf2/otf2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static OTF2_FlushType pre_flush(void *user, OTF2_FileType type, OTF2_LocationRef location,
                                void *caller, bool final) {
    (void)user, (void)type, (void)location, (void)caller, (void)final;
    return OTF2_FLUSH;
}

static const OTF2_FlushCallbacks flush_callbacks = {.otf2_pre_flush = pre_flush};

OTF2_Archive *compare_run_open(const char *directory) {
    OTF2_Archive *archive =
        OTF2_Archive_Open(directory, "trace", OTF2_FILEMODE_WRITE, OTF2_CHUNK_SIZE_MIN,
                          OTF2_CHUNK_SIZE_DEFINITIONS_DEFAULT, OTF2_SUBSTRATE_POSIX,
                          OTF2_COMPRESSION_NONE);
    if (archive == NULL || OTF2_Archive_SetFlushCallbacks(archive, &flush_callbacks, NULL) ||
        OTF2_Archive_SetSerialCollectiveCallbacks(archive) ||
        OTF2_Archive_OpenEvtFiles(archive)) {
        return NULL;
    }
    return archive;
}

static bool define(OTF2_Archive *archive, uint32_t locations, uint32_t regions, uint64_t events,
                   uint64_t ticks_per_second, uint64_t last_tick) {
    OTF2_GlobalDefWriter *w = OTF2_Archive_GetGlobalDefWriter(archive);
    bool bad = w == NULL;
    bad = bad || OTF2_GlobalDefWriter_WriteClockProperties(w, ticks_per_second, 0, last_tick, 0);
    bad = bad || OTF2_GlobalDefWriter_WriteString(w, 0, "");
    bad = bad || OTF2_GlobalDefWriter_WriteString(w, 1, "name");
    for (uint32_t region = 0; region < regions && !bad; region++) {
        bad = OTF2_GlobalDefWriter_WriteRegion(w, region, 1, 1, 0, OTF2_REGION_ROLE_FUNCTION,
                                               OTF2_PARADIGM_USER, OTF2_REGION_FLAG_NONE, 0, 0, 0);
    }
    bad = bad || OTF2_GlobalDefWriter_WriteSystemTreeNode(w, 0, 1, 1,
                                                          OTF2_UNDEFINED_SYSTEM_TREE_NODE);
    uint64_t *members = calloc(locations, sizeof *members);
    bad = bad || members == NULL;
    for (uint32_t location = 0; location < locations && !bad; location++) {
        members[location] = location;
        bad = OTF2_GlobalDefWriter_WriteLocationGroup(w, location, 1,
                                                      OTF2_LOCATION_GROUP_TYPE_PROCESS, 0,
                                                      OTF2_UNDEFINED_LOCATION_GROUP) ||
              OTF2_GlobalDefWriter_WriteLocation(w, location, 1, OTF2_LOCATION_TYPE_CPU_THREAD,
                                                 events, location);
    }
    bad = bad || OTF2_GlobalDefWriter_WriteGroup(w, 0, 1, OTF2_GROUP_TYPE_COMM_LOCATIONS,
                                                 OTF2_PARADIGM_MPI, OTF2_GROUP_FLAG_NONE,
                                                 locations, members);
    bad = bad || OTF2_GlobalDefWriter_WriteGroup(w, 1, 1, OTF2_GROUP_TYPE_COMM_GROUP,
                                                 OTF2_PARADIGM_MPI, OTF2_GROUP_FLAG_NONE,
                                                 locations, members);
    bad = bad || OTF2_GlobalDefWriter_WriteComm(w, 0, 1, 1, OTF2_UNDEFINED_COMM,
                                                OTF2_COMM_FLAG_NONE);
    for (uint32_t parameter = 0; parameter < 4; parameter++) {
        bad = bad ||
              OTF2_GlobalDefWriter_WriteParameter(w, parameter, 1, OTF2_PARAMETER_TYPE_UINT64);
    }
    free(members);
    return !bad;
}

/* 0: fine. */
int compare_run_close(OTF2_Archive *archive, uint32_t locations, uint32_t regions, uint64_t events,
                      uint64_t ticks_per_second, uint64_t last_tick) {
    bool bad = OTF2_Archive_CloseEvtFiles(archive) || OTF2_Archive_OpenDefFiles(archive);
    for (uint32_t location = 0; location < locations && !bad; location++) {
        OTF2_DefWriter *writer = OTF2_Archive_GetDefWriter(archive, location);
        bad = OTF2_Archive_CloseDefWriter(archive, writer);
    }
    bad = bad || OTF2_Archive_CloseDefFiles(archive);
    bad = bad || !define(archive, locations, regions, events, ticks_per_second, last_tick);
    return OTF2_Archive_Close(archive) || bad;
}

struct seen {
    uint64_t events;
    /* Of locations, regions and all other fields. */
    uint64_t sum;
    uint64_t times;
    uint64_t last;
    uint64_t disorder;
};

static void see(struct seen *seen, uint64_t time, uint64_t value) {
    seen->events++;
    seen->sum += value;
    seen->times += time;
    seen->disorder += time < seen->last;
    seen->last = time;
}

static OTF2_CallbackCode enter(OTF2_LocationRef location, OTF2_TimeStamp time, void *user,
                               OTF2_AttributeList *list, OTF2_RegionRef region) {
    (void)list;
    see(user, time, location + region);
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode message(OTF2_LocationRef location, OTF2_TimeStamp time, void *user,
                                 OTF2_AttributeList *list, uint32_t peer, OTF2_CommRef comm,
                                 uint32_t tag, uint64_t bytes) {
    (void)list;
    see(user, time, location + peer + comm + tag + bytes);
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode point(OTF2_LocationRef location, OTF2_TimeStamp time, void *user,
                               OTF2_AttributeList *list, OTF2_ParameterRef parameter,
                               uint64_t value) {
    (void)list;
    see(user, time, location + parameter + value);
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode request_message(OTF2_LocationRef location, OTF2_TimeStamp time, void *user,
                                         OTF2_AttributeList *list, uint32_t peer, OTF2_CommRef comm,
                                         uint32_t tag, uint64_t bytes, uint64_t request) {
    (void)list;
    see(user, time, location + peer + comm + tag + bytes + request);
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode request_only(OTF2_LocationRef location, OTF2_TimeStamp time, void *user,
                                      OTF2_AttributeList *list, uint64_t request) {
    (void)list;
    see(user, time, location + request);
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode collective_begin(OTF2_LocationRef location, OTF2_TimeStamp time, void *user,
                                          OTF2_AttributeList *list) {
    (void)list;
    see(user, time, location);
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode collective_end(OTF2_LocationRef location, OTF2_TimeStamp time, void *user,
                                        OTF2_AttributeList *list, OTF2_CollectiveOp operation,
                                        OTF2_CommRef comm, uint32_t root, uint64_t sent,
                                        uint64_t received) {
    (void)list;
    see(user, time, location + operation + comm + root + sent + received);
    return OTF2_CALLBACK_SUCCESS;
}

/* Reads all events in global order, with a callback for each that adds up all their fields, and their times. Returns how
   many there were, or -1 if it failed. */
int64_t compare_run_read(const char *anchor, uint32_t locations, uint64_t *sum, uint64_t *times) {
    OTF2_Reader *reader = OTF2_Reader_Open(anchor);
    if (reader == NULL) {
        return -1;
    }
    bool bad = OTF2_Reader_SetSerialCollectiveCallbacks(reader);
    for (uint32_t location = 0; location < locations && !bad; location++) {
        bad = OTF2_Reader_SelectLocation(reader, location);
    }
    bad = bad || OTF2_Reader_OpenEvtFiles(reader);
    uint64_t count = 0;
    OTF2_GlobalDefReader *definitions = OTF2_Reader_GetGlobalDefReader(reader);
    bad = bad || OTF2_Reader_ReadAllGlobalDefinitions(reader, definitions, &count);
    for (uint32_t location = 0; location < locations && !bad; location++) {
        bad = OTF2_Reader_GetEvtReader(reader, location) == NULL;
    }
    struct seen seen = {0};
    OTF2_GlobalEvtReaderCallbacks *callbacks = OTF2_GlobalEvtReaderCallbacks_New();
    OTF2_GlobalEvtReaderCallbacks_SetEnterCallback(callbacks, enter);
    OTF2_GlobalEvtReaderCallbacks_SetLeaveCallback(callbacks, enter);
    OTF2_GlobalEvtReaderCallbacks_SetMpiSendCallback(callbacks, message);
    OTF2_GlobalEvtReaderCallbacks_SetMpiRecvCallback(callbacks, message);
    OTF2_GlobalEvtReaderCallbacks_SetParameterUnsignedIntCallback(callbacks, point);
    OTF2_GlobalEvtReaderCallbacks_SetMpiIsendCallback(callbacks, request_message);
    OTF2_GlobalEvtReaderCallbacks_SetMpiIrecvCallback(callbacks, request_message);
    OTF2_GlobalEvtReaderCallbacks_SetMpiIsendCompleteCallback(callbacks, request_only);
    OTF2_GlobalEvtReaderCallbacks_SetMpiIrecvRequestCallback(callbacks, request_only);
    OTF2_GlobalEvtReaderCallbacks_SetMpiCollectiveBeginCallback(callbacks, collective_begin);
    OTF2_GlobalEvtReaderCallbacks_SetMpiCollectiveEndCallback(callbacks, collective_end);
    OTF2_GlobalEvtReader *global = bad ? NULL : OTF2_Reader_GetGlobalEvtReader(reader);
    bad = bad || OTF2_Reader_RegisterGlobalEvtCallbacks(reader, global, callbacks, &seen);
    OTF2_GlobalEvtReaderCallbacks_Delete(callbacks);
    bad = bad || OTF2_Reader_ReadAllGlobalEvents(reader, global, &count);
    bad = bad || seen.disorder != 0 || count != seen.events;
    OTF2_Reader_Close(reader);
    *sum = seen.sum;
    *times = seen.times;
    return bad ? -1 : (int64_t)seen.events;
}

/* Reads all events location by location, with a callback for each; returns their number, or -1 if it failed. */
struct local {
    uint64_t events;
    uint64_t sum;
};

static OTF2_CallbackCode local_enter(OTF2_LocationRef location, OTF2_TimeStamp time, uint64_t position,
                                     void *user, OTF2_AttributeList *list, OTF2_RegionRef region) {
    struct local *seen = user;
    (void)location, (void)position, (void)list;
    seen->events++;
    seen->sum += time + region;
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode local_message(OTF2_LocationRef location, OTF2_TimeStamp time, uint64_t position,
                                       void *user, OTF2_AttributeList *list, uint32_t peer,
                                       OTF2_CommRef comm, uint32_t tag, uint64_t bytes) {
    struct local *seen = user;
    (void)location, (void)position, (void)list;
    seen->events++;
    seen->sum += time + peer + comm + tag + bytes;
    return OTF2_CALLBACK_SUCCESS;
}

static OTF2_CallbackCode local_point(OTF2_LocationRef location, OTF2_TimeStamp time, uint64_t position,
                                     void *user, OTF2_AttributeList *list, OTF2_ParameterRef parameter,
                                     uint64_t value) {
    struct local *seen = user;
    (void)location, (void)position, (void)list;
    seen->events++;
    seen->sum += time + parameter + value;
    return OTF2_CALLBACK_SUCCESS;
}

int64_t compare_run_read_local(const char *anchor, uint32_t locations, uint64_t *sum) {
    OTF2_Reader *reader = OTF2_Reader_Open(anchor);
    if (reader == NULL) {
        return -1;
    }
    bool bad = OTF2_Reader_SetSerialCollectiveCallbacks(reader);
    for (uint32_t location = 0; location < locations && !bad; location++) {
        bad = OTF2_Reader_SelectLocation(reader, location);
    }
    bad = bad || OTF2_Reader_OpenDefFiles(reader) || OTF2_Reader_OpenEvtFiles(reader);
    uint64_t count = 0;
    OTF2_GlobalDefReader *definitions = OTF2_Reader_GetGlobalDefReader(reader);
    bad = bad || OTF2_Reader_ReadAllGlobalDefinitions(reader, definitions, &count);
    struct local seen = {0};
    OTF2_EvtReaderCallbacks *callbacks = OTF2_EvtReaderCallbacks_New();
    OTF2_EvtReaderCallbacks_SetEnterCallback(callbacks, local_enter);
    OTF2_EvtReaderCallbacks_SetLeaveCallback(callbacks, local_enter);
    OTF2_EvtReaderCallbacks_SetMpiSendCallback(callbacks, local_message);
    OTF2_EvtReaderCallbacks_SetMpiRecvCallback(callbacks, local_message);
    OTF2_EvtReaderCallbacks_SetParameterUnsignedIntCallback(callbacks, local_point);
    for (uint32_t location = 0; location < locations && !bad; location++) {
        OTF2_DefReader *own = OTF2_Reader_GetDefReader(reader, location);
        bad = own == NULL || OTF2_Reader_ReadAllLocalDefinitions(reader, own, &count) ||
              OTF2_Reader_CloseDefReader(reader, own);
        OTF2_EvtReader *events = bad ? NULL : OTF2_Reader_GetEvtReader(reader, location);
        bad = bad || events == NULL ||
              OTF2_Reader_RegisterEvtCallbacks(reader, events, callbacks, &seen) ||
              OTF2_Reader_ReadAllLocalEvents(reader, events, &count) ||
              OTF2_Reader_CloseEvtReader(reader, events);
    }
    OTF2_EvtReaderCallbacks_Delete(callbacks);
    OTF2_Reader_Close(reader);
    *sum = seen.sum;
    return bad ? -1 : (int64_t)seen.events;
}
