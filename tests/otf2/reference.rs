//! The reference library: a program that writes archives with every event record, and one that prints what it reads.
//! Both are made of the format's own table, so that no record can be forgotten.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use annals_foreign::otf2::{FieldType, Record, list_of, records};

/// The last record that every version of the library since 3.0 knows.
const LAST_KNOWN: u8 = 88;

/// Records that a program can write with the library.
fn writable() -> impl Iterator<Item = &'static Record> {
    let records = records::EVENTS.iter();
    records.filter(|record| record.id <= LAST_KNOWN && record.name != "BufferFlush")
}

fn readable() -> impl Iterator<Item = &'static Record> {
    records::EVENTS
        .iter()
        .filter(|record| record.id <= LAST_KNOWN)
}

const COMMON: &str = r"
#include <otf2/otf2.h>
#include <stdbool.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
";

const WRITER_HEAD: &str = r#"
static uint64_t state;
static uint64_t next(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = state ^ state >> 33;
    return x * 0xff51afd7ed558ccdu ^ x >> 29;
}
/* Small, large, none, all bits. */
static uint64_t any(void) {
    switch (next() % 6) {
    case 0: return 0;
    case 1: return UINT64_MAX;
    case 2: return next() % 300;
    case 3: return next() >> next() % 64;
    default: return next();
    }
}
static uint32_t any32(void) { return any(); }
static uint8_t any8(void) { return any(); }
enum { N = 6 };
static uint32_t reference(void) { return next() % 40 == 0 ? UINT32_MAX : next() % N; }
static OTF2_FlushType pre_flush(void *u, OTF2_FileType t, OTF2_LocationRef l, void *c, bool f) {
    (void)u, (void)t, (void)l, (void)c, (void)f;
    return OTF2_FLUSH;
}
static OTF2_TimeStamp now;
static OTF2_TimeStamp post_flush(void *u, OTF2_FileType t, OTF2_LocationRef l) {
    (void)u, (void)t, (void)l;
    return now;
}
static const OTF2_FlushCallbacks flush = {.otf2_pre_flush = pre_flush, .otf2_post_flush = post_flush};
#define DO(call) do { OTF2_ErrorCode e = (call); if (e != OTF2_SUCCESS) { \
    fprintf(stderr, "%s: %s\n", #call, OTF2_Error_GetDescription(e)); exit(1); } } while (0)

static void attributes(OTF2_AttributeList *list) {
    uint64_t count = next() % 4 == 0 ? next() % 5 : 0;
    if (next() % 500 == 0) count = 20;
    for (uint64_t i = 0; i < count; i++) {
        OTF2_AttributeRef id = next() % 24;
        /* Mostly one type each; some have more kinds than an event type has places for. */
        OTF2_Type type = 1 + (next() % 30 ? id : next() % 25);
        OTF2_AttributeValue value;
        value.uint64 = any();
        /* The library keeps what is behind a narrow value. */
        if (type == OTF2_TYPE_UINT8 || type == OTF2_TYPE_INT8) value.uint64 &= 0xff;
        if (type == OTF2_TYPE_UINT16 || type == OTF2_TYPE_INT16) value.uint64 &= 0xffff;
        if (type == OTF2_TYPE_UINT32 || type == OTF2_TYPE_INT32) value.uint64 &= 0xffffffff;
        if (type == OTF2_TYPE_FLOAT) { value.uint64 = 0; value.float32 = (float)(next() % 1000) / 8; }
        if (type >= OTF2_TYPE_STRING) value.uint64 = next() % N;
        if (!OTF2_AttributeList_TestAttributeByID(list, id)) {
            DO(OTF2_AttributeList_AddAttribute(list, id, type, value));
        }
    }
}
"#;

fn argument(what: FieldType) -> &'static str {
    match what {
        FieldType::U8 | FieldType::Enum8(_) => "any8()",
        FieldType::Ref8(_) => "next() % N",
        FieldType::C32 | FieldType::Enum32(_) => "any32()",
        FieldType::Ref32(_) => "reference()",
        FieldType::Ref64(_) => "next() % N",
        FieldType::Ci64 => "(int64_t)any()",
        _ => "any()",
    }
}

fn write_of(record: &Record) -> String {
    let name = record.name;
    match name {
        "Metric" => r"{
            static const OTF2_Type types[] = {OTF2_TYPE_UINT64, OTF2_TYPE_INT64, OTF2_TYPE_DOUBLE};
            OTF2_Type type[40]; OTF2_MetricValue value[40];
            uint32_t metric = next() % N;
            /* One composition each: classes of 1, 2, … members; two instances of the last. */
            uint8_t count = metric == 0 ? 30 : metric < 4 ? metric : 4;
            for (int i = 0; i < count; i++) { type[i] = types[i % 3]; value[i].unsigned_int = any(); }
            DO(OTF2_EvtWriter_Metric(w, list, now, metric, count, type, value));
        }"
        .to_owned(),
        "ProgramBegin" => r"{
            OTF2_StringRef words[5]; uint32_t count = next() % 6;
            for (uint32_t i = 0; i < count; i++) words[i] = next() % N;
            DO(OTF2_EvtWriter_ProgramBegin(w, list, now, next() % N, count, words));
        }"
        .to_owned(),
        // The library refuses other modes.
        "MeasurementOnOff" => "DO(OTF2_EvtWriter_MeasurementOnOff(w, list, now, 1 + next() % 2));".to_owned(),
        _ => {
            let mut call = format!("DO(OTF2_EvtWriter_{name}(w, list, now");
            for field in record.fields {
                let _ = write!(call, ", {}", argument(field.what));
            }
            call + "));"
        }
    }
}

fn writer() -> String {
    let mut text = format!("{COMMON}{WRITER_HEAD}");
    text +=
        "static void event(OTF2_EvtWriter *w, OTF2_AttributeList *list) {\n    switch (next() % ";
    let _ = writeln!(text, "{}) {{", writable().count() + 8);
    for (number, record) in writable().enumerate() {
        let _ = writeln!(text, "    case {number}: {} break;", write_of(record));
    }
    text += "    default: DO(OTF2_EvtWriter_Enter(w, list, now, reference())); break;\n    }\n}\n";
    text += r#"
static OTF2_IdMap *map(uint64_t kind, bool is_sparse) {
    /* Of two attributes with one number the reader makes an error. */
    bool is_whole = !is_sparse || kind == OTF2_MAPPING_ATTRIBUTE;
    OTF2_IdMap *map = OTF2_IdMap_Create(is_sparse ? OTF2_ID_MAP_SPARSE : OTF2_ID_MAP_DENSE, N);
    for (uint64_t i = 0; i < N; i++) {
        uint64_t to = (i * 5 + 1) % N;
        if (is_whole || i % 2 == 0) DO(OTF2_IdMap_AddIdPair(map, i, to));
    }
    return map;
}

static void define(OTF2_Archive *archive, uint64_t locations, const uint64_t *ids, const uint64_t *events,
                   uint64_t resolution, uint64_t offset) {
    OTF2_GlobalDefWriter *g = OTF2_Archive_GetGlobalDefWriter(archive);
    DO(OTF2_GlobalDefWriter_WriteClockProperties(g, resolution, offset, now - offset, 1700000000123456789u));
    uint32_t s = 0;
    DO(OTF2_GlobalDefWriter_WriteString(g, s++, ""));
    char text[100];
    for (; s < 10; s++) {
        snprintf(text, sizeof text, "string-%" PRIu32, s);
        DO(OTF2_GlobalDefWriter_WriteString(g, s, text));
    }
#define NAME(kind, i) (snprintf(text, sizeof text, "%s-%d", kind, (int)(i)), \
    OTF2_GlobalDefWriter_WriteString(g, s, text) ? (abort(), 0) : s++)
    OTF2_AttributeValue value = {.uint64 = 3};
    DO(OTF2_GlobalDefWriter_WriteParadigm(g, OTF2_PARADIGM_MPI, 1, OTF2_PARADIGM_CLASS_PROCESS));
    DO(OTF2_GlobalDefWriter_WriteParadigmProperty(g, OTF2_PARADIGM_MPI, OTF2_PARADIGM_PROPERTY_RMA_ONLY, OTF2_TYPE_UINT8, value));
    OTF2_IoParadigmProperty io_property = OTF2_IO_PARADIGM_PROPERTY_VERSION;
    OTF2_Type io_type = OTF2_TYPE_STRING;
    for (int i = 0; i < N; i++)
        DO(OTF2_GlobalDefWriter_WriteIoParadigm(g, i, 2, NAME("I/O paradigm", i), OTF2_IO_PARADIGM_CLASS_SERIAL,
            OTF2_IO_PARADIGM_FLAG_OS, i % 2, &io_property, &io_type, &value));
    for (int i = 0; i < 24; i++)
        DO(OTF2_GlobalDefWriter_WriteAttribute(g, i, NAME("attribute", i), 3, OTF2_TYPE_UINT64));
    DO(OTF2_GlobalDefWriter_WriteSystemTreeNode(g, 0, NAME("machine", 0), NAME("class", 0), OTF2_UNDEFINED_SYSTEM_TREE_NODE));
    DO(OTF2_GlobalDefWriter_WriteSystemTreeNode(g, 1, NAME("host", 1), NAME("class", 1), 0));
    DO(OTF2_GlobalDefWriter_WriteSystemTreeNodeProperty(g, 1, 2, OTF2_TYPE_STRING, value));
    DO(OTF2_GlobalDefWriter_WriteSystemTreeNodeDomain(g, 1, OTF2_SYSTEM_TREE_DOMAIN_SHARED_MEMORY));
    for (uint64_t i = 0; i < N; i++)
        DO(OTF2_GlobalDefWriter_WriteLocationGroup(g, i, NAME("location group", i), OTF2_LOCATION_GROUP_TYPE_PROCESS, 1, OTF2_UNDEFINED_LOCATION_GROUP));
    for (uint64_t i = 0; i < locations; i++)
        DO(OTF2_GlobalDefWriter_WriteLocation(g, ids[i], NAME("location", i), OTF2_LOCATION_TYPE_CPU_THREAD, events[i], i % N));
    DO(OTF2_GlobalDefWriter_WriteLocationGroupProperty(g, 0, 2, OTF2_TYPE_STRING, value));
    DO(OTF2_GlobalDefWriter_WriteLocationProperty(g, ids[0], 2, OTF2_TYPE_UINT64, value));
    for (int i = 0; i < N; i++)
        DO(OTF2_GlobalDefWriter_WriteRegion(g, i, NAME("region", i), NAME("canonical", i), 1, OTF2_REGION_ROLE_FUNCTION, OTF2_PARADIGM_MPI, 0, 4, i, i + 1));
    DO(OTF2_GlobalDefWriter_WriteCallsite(g, 0, 1, 7, 0, 1));
    DO(OTF2_GlobalDefWriter_WriteCallpath(g, 0, OTF2_UNDEFINED_CALLPATH, 2));
    DO(OTF2_GlobalDefWriter_WriteCallpath(g, 1, 0, 3));
    uint64_t members[N];
    for (uint64_t i = 0; i < N; i++) members[i] = ids[i % locations];
    uint64_t world = locations < N ? locations : N;
    DO(OTF2_GlobalDefWriter_WriteGroup(g, 0, NAME("group", 0), OTF2_GROUP_TYPE_COMM_LOCATIONS, OTF2_PARADIGM_MPI, 0, world, members));
    for (uint64_t i = 0; i < N; i++) members[i] = i;
    DO(OTF2_GlobalDefWriter_WriteGroup(g, 1, NAME("group", 1), OTF2_GROUP_TYPE_COMM_GROUP, OTF2_PARADIGM_MPI, 0, world, members));
    DO(OTF2_GlobalDefWriter_WriteGroup(g, 2, NAME("group", 2), OTF2_GROUP_TYPE_COMM_SELF, OTF2_PARADIGM_MPI, 0, 0, NULL));
    for (int i = 3; i < N; i++)
        DO(OTF2_GlobalDefWriter_WriteGroup(g, i, NAME("group", i), OTF2_GROUP_TYPE_REGIONS, OTF2_PARADIGM_UNKNOWN, 0, 2, members));
    static const OTF2_Type types[] = {OTF2_TYPE_UINT64, OTF2_TYPE_INT64, OTF2_TYPE_DOUBLE};
    OTF2_MetricMemberRef all[30];
    for (int i = 0; i < 30; i++) {
        all[i] = i;
        DO(OTF2_GlobalDefWriter_WriteMetricMember(g, i, NAME("member", i), 1, OTF2_METRIC_TYPE_USER, OTF2_METRIC_ABSOLUTE_POINT, types[i % 3], OTF2_BASE_DECIMAL, i % 2 ? -9 : 0, 5));
    }
    DO(OTF2_GlobalDefWriter_WriteMetricClass(g, 0, 30, all, OTF2_METRIC_ASYNCHRONOUS, OTF2_RECORDER_KIND_CPU));
    for (int i = 1; i < 5; i++)
        DO(OTF2_GlobalDefWriter_WriteMetricClass(g, i, i, all, OTF2_METRIC_ASYNCHRONOUS, OTF2_RECORDER_KIND_CPU));
    DO(OTF2_GlobalDefWriter_WriteMetricInstance(g, 5, 4, ids[0], OTF2_SCOPE_LOCATION, ids[0]));
    DO(OTF2_GlobalDefWriter_WriteMetricClassRecorder(g, 1, ids[0]));
    for (int i = 0; i < N - 1; i++)
        DO(OTF2_GlobalDefWriter_WriteComm(g, i, NAME("communicator", i), 1 + i % 2, i ? 0 : OTF2_UNDEFINED_COMM, OTF2_COMM_FLAG_NONE));
    DO(OTF2_GlobalDefWriter_WriteInterComm(g, N - 1, NAME("communicator", N - 1), 1, 1, 0, OTF2_COMM_FLAG_NONE));
    for (int i = 0; i < N; i++)
        DO(OTF2_GlobalDefWriter_WriteParameter(g, i, NAME("parameter", i), i % 3));
    DO(OTF2_GlobalDefWriter_WriteCallpathParameter(g, 1, 0, OTF2_TYPE_STRING, value));
    for (int i = 0; i < N; i++)
        DO(OTF2_GlobalDefWriter_WriteRmaWin(g, i, NAME("window", i), 0, OTF2_RMA_WIN_FLAG_NONE));
    for (int i = 0; i < 2; i++)
        DO(OTF2_GlobalDefWriter_WriteCartDimension(g, i, NAME("dimension", i), 3, OTF2_CART_PERIODIC_TRUE));
    OTF2_CartDimensionRef dimensions[] = {0, 1};
    uint32_t coordinates[] = {1, 2};
    DO(OTF2_GlobalDefWriter_WriteCartTopology(g, 0, NAME("topology", 0), 0, 2, dimensions));
    DO(OTF2_GlobalDefWriter_WriteCartCoordinate(g, 0, 0, 2, coordinates));
    for (int i = 0; i < N; i++) {
        DO(OTF2_GlobalDefWriter_WriteSourceCodeLocation(g, i, 4, 10 + i));
        DO(OTF2_GlobalDefWriter_WriteCallingContext(g, i, i, i, i ? i - 1 : OTF2_UNDEFINED_CALLING_CONTEXT));
        DO(OTF2_GlobalDefWriter_WriteInterruptGenerator(g, i, NAME("interrupt generator", i), OTF2_INTERRUPT_GENERATOR_MODE_TIME, OTF2_BASE_DECIMAL, -9, 1000));
    }
    DO(OTF2_GlobalDefWriter_WriteCallingContextProperty(g, 0, 2, OTF2_TYPE_STRING, value));
    for (int i = 0; i < N; i++) {
        if (i % 2) DO(OTF2_GlobalDefWriter_WriteIoDirectory(g, i, NAME("file", i), 1));
        else DO(OTF2_GlobalDefWriter_WriteIoRegularFile(g, i, NAME("file", i), 1));
    }
    DO(OTF2_GlobalDefWriter_WriteIoFileProperty(g, 0, 2, OTF2_TYPE_STRING, value));
    for (int i = 0; i < N; i++)
        DO(OTF2_GlobalDefWriter_WriteIoHandle(g, i, NAME("I/O handle", i), i, i, OTF2_IO_HANDLE_FLAG_NONE, OTF2_UNDEFINED_COMM, OTF2_UNDEFINED_IO_HANDLE));
    DO(OTF2_GlobalDefWriter_WriteIoPreCreatedHandleState(g, 0, OTF2_IO_ACCESS_MODE_READ_ONLY, OTF2_IO_STATUS_FLAG_APPEND));
    DO(OTF2_Archive_CloseGlobalDefWriter(archive, g));
}

int main(int argc, char **argv) {
    (void)argc;
    const char *directory = argv[1];
    state = strtoull(argv[2], NULL, 10);
    uint64_t locations = strtoull(argv[3], NULL, 10), count = strtoull(argv[4], NULL, 10);
    uint64_t resolution = strtoull(argv[5], NULL, 10), offset = 1000000000000;
    OTF2_Archive *archive = OTF2_Archive_Open(directory, "traces", OTF2_FILEMODE_WRITE, 1 << 18, 1 << 18,
        OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
    DO(OTF2_Archive_SetFlushCallbacks(archive, &flush, NULL));
    DO(OTF2_Archive_SetSerialCollectiveCallbacks(archive));
    DO(OTF2_Archive_OpenEvtFiles(archive));
    uint64_t ids[64], events[64], end = 0;
    for (uint64_t l = 0; l < locations; l++) {
        ids[l] = l < 2 ? l : (l << 32) + 7;
        now = offset + next() % 1000;
        OTF2_EvtWriter *w = OTF2_Archive_GetEvtWriter(archive, ids[l]);
        for (uint64_t i = 0; i < count; i++) {
            if (next() % 3) now += next() % 5000;
            OTF2_AttributeList *list = OTF2_AttributeList_New();
            attributes(list);
            event(w, list);
            OTF2_AttributeList_Delete(list);
        }
        DO(OTF2_EvtWriter_GetNumberOfEvents(w, &events[l]));
        DO(OTF2_Archive_CloseEvtWriter(archive, w));
        if (now > end) end = now;
    }
    now = end + 100000;
    DO(OTF2_Archive_CloseEvtFiles(archive));
    DO(OTF2_Archive_OpenDefFiles(archive));
    for (uint64_t l = 0; l < locations; l++) {
        OTF2_DefWriter *d = OTF2_Archive_GetDefWriter(archive, ids[l]);
        if (l % 3 != 0) {
            for (int kind = 0; kind < OTF2_MAPPING_MAX; kind++) {
                /* Locations have numbers that no small table holds; metrics have each their composition. */
                if (kind == OTF2_MAPPING_LOCATION || kind == OTF2_MAPPING_METRIC || (kind + l) % 4 == 0) continue;
                OTF2_IdMap *m = map(kind, (kind + l) % 2);
                DO(OTF2_DefWriter_WriteMappingTable(d, kind, m));
                OTF2_IdMap_Free(m);
            }
        }
        /* None, one, two or four points. */
        static const int points[] = {0, 1, 2, 4};
        for (int i = 0; i < points[l % 4]; i++)
            DO(OTF2_DefWriter_WriteClockOffset(d, offset + (uint64_t)i * (end - offset) / 3, (int64_t)(next() % 4000) - 2000, 0.5));
        DO(OTF2_Archive_CloseDefWriter(archive, d));
    }
    DO(OTF2_Archive_CloseDefFiles(archive));
    /* Corrected times may lie before. */
    define(archive, locations, ids, events, resolution, offset - 100000);
    DO(OTF2_Archive_Close(archive));
    return 0;
}
"#;
    text
}

/// C's type of a field as callbacks take it.
fn parameter(what: FieldType) -> &'static str {
    match what {
        FieldType::U8 | FieldType::Enum8(_) | FieldType::Ref8(_) => "uint8_t",
        FieldType::C32 | FieldType::Enum32(_) | FieldType::Ref32(_) => "uint32_t",
        FieldType::Ci64 => "int64_t",
        _ => "uint64_t",
    }
}

fn reader() -> String {
    let mut text = COMMON.to_owned();
    text += r#"
static uint64_t expected_bits(OTF2_Type type, OTF2_AttributeValue v) {
    switch (type) {
    case OTF2_TYPE_UINT8: return v.uint8;
    case OTF2_TYPE_UINT16: return v.uint16;
    case OTF2_TYPE_INT8: return (uint64_t)(int64_t)v.int8;
    case OTF2_TYPE_INT16: return (uint64_t)(int64_t)v.int16;
    case OTF2_TYPE_INT32: return (uint64_t)(int64_t)v.int32;
    case OTF2_TYPE_FLOAT: { uint32_t bits; memcpy(&bits, &v.float32, 4); return bits; }
    case OTF2_TYPE_UINT64: case OTF2_TYPE_INT64: case OTF2_TYPE_DOUBLE: case OTF2_TYPE_LOCATION: return v.uint64;
    default: return v.uint32;
    }
}
static void start(const char *name, OTF2_LocationRef location, OTF2_TimeStamp time) {
    printf("%s %" PRIu64 " %" PRIu64, name, location, time);
}
static OTF2_CallbackCode end(OTF2_AttributeList *list) {
    printf(" |");
    for (uint32_t i = 0; i < OTF2_AttributeList_GetNumberOfElements(list); i++) {
        OTF2_AttributeRef id; OTF2_Type type; OTF2_AttributeValue value;
        OTF2_AttributeList_GetAttributeByIndex(list, i, &id, &type, &value);
        printf(" %" PRIu32 ":%d:%" PRIu64, id, type, expected_bits(type, value));
    }
    printf("\n");
    return OTF2_CALLBACK_SUCCESS;
}
static void value(uint64_t v) { printf(" %" PRIu64, v); }
static OTF2_CallbackCode unknown(OTF2_LocationRef l, OTF2_TimeStamp t, void *u, OTF2_AttributeList *a) {
    (void)u; start("UNKNOWN", l, t); return end(a);
}
"#;
    for record in readable() {
        let name = record.name;
        let _ = write!(
            text,
            "static OTF2_CallbackCode on_{name}(OTF2_LocationRef l, OTF2_TimeStamp t, void *u, \
             OTF2_AttributeList *a"
        );
        let list = list_of(record).map(|(place, _)| place);
        let mut body = String::new();
        for (index, field) in record.fields.iter().enumerate() {
            let (what, field) = (field.what, field.name);
            if list == Some(index) {
                let (types, items) = match name {
                    "Metric" => (
                        "uint8_t n, const OTF2_Type *y, const OTF2_MetricValue *v",
                        "value(y[i]); value(v[i].unsigned_int);",
                    ),
                    _ => ("uint32_t n, const OTF2_StringRef *v", "value(v[i]);"),
                };
                let _ = write!(text, ", {types}");
                let _ = write!(body, " for (uint32_t i = 0; i < n; i++) {{ {items} }}");
                continue;
            }
            let _ = write!(text, ", {} f_{field}", parameter(what));
            let _ = write!(body, " value((uint64_t)f_{field});");
        }
        let _ = writeln!(
            text,
            ") {{ (void)u; start(\"{}\", l, t);{body} return end(a); }}",
            record.capitals
        );
    }
    text += r#"
static OTF2_CallbackCode location(void *user, OTF2_LocationRef self, OTF2_StringRef name, OTF2_LocationType type,
                                  uint64_t events, OTF2_LocationGroupRef group) {
    (void)name, (void)type, (void)events, (void)group;
    OTF2_Reader *reader = user;
    OTF2_Reader_SelectLocation(reader, self);
    return OTF2_CALLBACK_SUCCESS;
}
int main(int argc, char **argv) {
    (void)argc;
    OTF2_Reader *reader = OTF2_Reader_Open(argv[1]);
    if (!reader) return 1;
    OTF2_Reader_SetSerialCollectiveCallbacks(reader);
    uint64_t read;
    OTF2_GlobalDefReader *g = OTF2_Reader_GetGlobalDefReader(reader);
    OTF2_GlobalDefReaderCallbacks *gc = OTF2_GlobalDefReaderCallbacks_New();
    OTF2_GlobalDefReaderCallbacks_SetLocationCallback(gc, location);
    OTF2_Reader_RegisterGlobalDefCallbacks(reader, g, gc, reader);
    if (OTF2_Reader_ReadAllGlobalDefinitions(reader, g, &read)) return 2;
    uint64_t count;
    OTF2_Reader_GetNumberOfLocations(reader, &count);
    bool has_definitions = OTF2_Reader_OpenDefFiles(reader) == OTF2_SUCCESS;
    OTF2_Reader_OpenEvtFiles(reader);
    /* Locations in the order of their numbers are found by trying: those selected answer. */
    for (int i = 2; argv[i]; i++) {
        OTF2_LocationRef self = strtoull(argv[i], NULL, 10);
        if (has_definitions) {
            OTF2_DefReader *d = OTF2_Reader_GetDefReader(reader, self);
            if (d) {
                OTF2_Reader_ReadAllLocalDefinitions(reader, d, &read);
                OTF2_Reader_CloseDefReader(reader, d);
            }
        }
        if (!OTF2_Reader_GetEvtReader(reader, self)) return 3;
    }
    if (has_definitions) OTF2_Reader_CloseDefFiles(reader);
    OTF2_GlobalEvtReader *e = OTF2_Reader_GetGlobalEvtReader(reader);
    OTF2_GlobalEvtReaderCallbacks *c = OTF2_GlobalEvtReaderCallbacks_New();
    OTF2_GlobalEvtReaderCallbacks_SetUnknownCallback(c, unknown);
"#;
    for record in readable() {
        let name = record.name;
        let _ = writeln!(
            text,
            "    OTF2_GlobalEvtReaderCallbacks_Set{name}Callback(c, (OTF2_GlobalEvtReaderCallback_{name})on_{name});"
        );
    }
    text += r"
    OTF2_Reader_RegisterGlobalEvtCallbacks(reader, e, c, NULL);
    OTF2_ErrorCode status = OTF2_Reader_ReadAllGlobalEvents(reader, e, &read);
    OTF2_Reader_CloseGlobalEvtReader(reader, e);
    OTF2_Reader_CloseEvtFiles(reader);
    OTF2_Reader_Close(reader);
    return status ? 4 : 0;
}
";
    text
}

/// Adds markers to an archive, out of order, of four definitions; there is also an unused definition.
const MARK: &str = r#"
int main(int argc, char **argv) {
    (void)argc;
    OTF2_Reader *reader = OTF2_Reader_Open(argv[1]);
    if (!reader) return 1;
    DO(OTF2_Reader_SetSerialCollectiveCallbacks(reader));
    OTF2_MarkerWriter *w = OTF2_Reader_GetMarkerWriter(reader);
    uint64_t count = strtoull(argv[2], NULL, 10), offset = 1000000000000;
    state = 77;
    char text[200];
    for (uint32_t i = 0; i < 5; i++) {
        snprintf(text, sizeof text, "category %" PRIu32, i);
        DO(OTF2_MarkerWriter_WriteDefMarker(w, i * 1000 + 3, i % 2 ? "gr\xc3\xbc" "n" : "red", text, i % 4));
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t scope = next() % 6;
        uint64_t of = scope == OTF2_MARKER_SCOPE_GLOBAL ? OTF2_UNDEFINED_UINT64 : scope == OTF2_MARKER_SCOPE_SYSTEM_TREE_NODE ? i % 2
            : scope == OTF2_MARKER_SCOPE_LOCATION ? 1 : scope == OTF2_MARKER_SCOPE_GROUP ? 0 : i % N;
        snprintf(text, sizeof text, "%" PRIu64 " %.*s", i, (int)(next() % 100), "what was seen here and there, time and again, and told so that others may see it as well, if they look");
        DO(OTF2_MarkerWriter_WriteMarker(w, offset + next() % 1000000, next() % 3 ? 0 : next() % 5000, next() % 4 * 1000 + 3, scope, of, text));
    }
    DO(OTF2_Reader_CloseMarkerWriter(reader, w));
    DO(OTF2_Reader_Close(reader));
    return 0;
}
"#;

/// Archives that are like no other: `odd DIRECTORY KIND`.
const ODD: &str = r#"
enum { NONE, EMPTY, HUGE_IDS, DEEP, METRICS, ATTRIBUTES, STRINGS, EARLY, LATE, COARSE, FINE, MANY, BACKWARD, UNDEFINED, RINGS };
static OTF2_GlobalDefWriter *g;
static OTF2_Archive *archive;
static uint32_t strings;
static uint32_t text(const char *what) {
    DO(OTF2_GlobalDefWriter_WriteString(g, strings, what));
    return strings++;
}
static OTF2_EvtWriter *open_location(uint64_t id) { return OTF2_Archive_GetEvtWriter(archive, id); }
static void plain_events(OTF2_EvtWriter *w, uint64_t start, uint64_t step, uint32_t region) {
    for (int i = 0; i < 20; i++) {
        DO(OTF2_EvtWriter_Enter(w, NULL, start + 2 * i * step, region));
        DO(OTF2_EvtWriter_Leave(w, NULL, start + (2 * i + 1) * step, region));
    }
}
int main(int argc, char **argv) {
    (void)argc;
    int kind = atoi(argv[2]);
    state = 5;
    archive = OTF2_Archive_Open(argv[1], "traces", OTF2_FILEMODE_WRITE, 1 << 18, 1 << 18, OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
    DO(OTF2_Archive_SetFlushCallbacks(archive, &flush, NULL));
    DO(OTF2_Archive_SetSerialCollectiveCallbacks(archive));
    DO(OTF2_Archive_OpenEvtFiles(archive));
    uint64_t offset = 1000, length = 100000, resolution = 1000000000, start = 2000, step = 10;
    uint64_t ids[3000], counts[3000], count = 3;
    for (uint64_t i = 0; i < 3000; i++) ids[i] = i;
    uint32_t regions[3] = {0, 1, 2};
    switch (kind) {
    case NONE: count = 0; break;
    case HUGE_IDS:
        ids[0] = 5; ids[1] = (uint64_t)1 << 63; ids[2] = UINT64_MAX - 1;
        regions[0] = 4294967294u; regions[1] = 1u << 31; regions[2] = 4194304;
        break;
    case MANY: count = 3000; break;
    case EARLY: start = 0; offset = 500; step = 1; break;
    case LATE: offset = 0; start = (uint64_t)1 << 63; length = start + 100000; break;
    case COARSE: resolution = 1; offset = 1700000000; start = offset; length = 1000; break;
    case FINE: resolution = 1000000000000000; break;
    default: break;
    }
    for (uint64_t l = 0; l < count; l++) {
        OTF2_EvtWriter *w = open_location(ids[l]);
        OTF2_AttributeList *list = OTF2_AttributeList_New();
        OTF2_AttributeValue value;
        switch (kind) {
        case EMPTY: break;
        case METRICS: {
            OTF2_Type types[255]; OTF2_MetricValue values[255];
            for (int i = 0; i < 255; i++) { types[i] = OTF2_TYPE_INT64 + i % 3; if (i % 3 == 1) types[i] = OTF2_TYPE_UINT64; values[i].signed_int = -i; }
            for (int i = 0; i < 60; i++) {
                static const uint8_t members[] = {1, 2, 255, 101, 100, 3, 3, 3, 3, 3};
                uint32_t metric = i % 10;
                DO(OTF2_EvtWriter_Metric(w, NULL, start + i, metric, members[metric], types, values));
            }
            /* Other types, and fewer values than the class has. */
            types[0] = OTF2_TYPE_DOUBLE; values[0].floating_point = 0.1;
            DO(OTF2_EvtWriter_Metric(w, NULL, start + 100, 0, 1, types, values));
            DO(OTF2_EvtWriter_Metric(w, NULL, start + 101, 2, 1, types, values));
            DO(OTF2_EvtWriter_Metric(w, NULL, start + 102, 77, 2, types, values));
            break;
        }
        case ATTRIBUTES:
            for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 400 && !(round == 1 && i > 20); i++) {
                    value.uint64 = 0;
                    switch (1 + i % 25) {
                    case OTF2_TYPE_FLOAT: value.float32 = i / 8.0f; break;
                    case OTF2_TYPE_DOUBLE: value.float64 = i / 8.0; break;
                    case OTF2_TYPE_INT8: value.int8 = -i; break;
                    case OTF2_TYPE_INT16: value.int16 = -i; break;
                    case OTF2_TYPE_INT32: value.int32 = -i; break;
                    case OTF2_TYPE_INT64: value.int64 = -i; break;
                    case OTF2_TYPE_UINT8: value.uint8 = i; break;
                    default: value.uint32 = i % 3; break;
                    }
                    DO(OTF2_AttributeList_AddAttribute(list, i, 1 + i % 25, value));
                }
                DO(OTF2_EvtWriter_Enter(w, list, start + 2 * round, 0));
                DO(OTF2_EvtWriter_Leave(w, NULL, start + 2 * round + 1, 0));
            }
            break;
        case STRINGS:
            for (uint32_t i = 0; i < 12; i++) {
                value.stringRef = i;
                DO(OTF2_AttributeList_AddStringRef(list, 0, i));
                DO(OTF2_EvtWriter_ParameterString(w, list, start + i, 0, i));
            }
            break;
        case UNDEFINED:
            plain_events(w, start, step, 99);
            DO(OTF2_EvtWriter_MpiSend(w, NULL, start + 10000, 7, 55, 1, 2));
            DO(OTF2_EvtWriter_MpiRecv(w, NULL, start + 10001, UINT32_MAX, OTF2_UNDEFINED_COMM, UINT32_MAX, UINT64_MAX));
            DO(OTF2_EvtWriter_ThreadFork(w, NULL, start + 10002, 250, 4));
            DO(OTF2_EvtWriter_CallingContextSample(w, NULL, start + 10003, 9, 3, 8));
            DO(OTF2_EvtWriter_IoSeek(w, NULL, start + 10004, 6, -5, 200, 1));
            DO(OTF2_EvtWriter_RmaPut(w, NULL, start + 10005, 4, 3, 2, 1));
            DO(OTF2_EvtWriter_ParameterString(w, NULL, start + 10006, 3, 1000));
            break;
        case MANY:
            DO(OTF2_EvtWriter_Enter(w, NULL, start + l, l % 3));
            DO(OTF2_EvtWriter_Leave(w, NULL, start + l + 7, l % 3));
            break;
        default: plain_events(w, start, step, regions[l % 3]); break;
        }
        OTF2_AttributeList_Delete(list);
        DO(OTF2_EvtWriter_GetNumberOfEvents(w, &counts[l]));
        DO(OTF2_Archive_CloseEvtWriter(archive, w));
    }
    DO(OTF2_Archive_CloseEvtFiles(archive));
    DO(OTF2_Archive_OpenDefFiles(archive));
    for (uint64_t l = 0; l < count; l++) {
        OTF2_DefWriter *d = OTF2_Archive_GetDefWriter(archive, ids[l]);
        if (kind == BACKWARD && l != 1) {
            /* Corrected, times go back from the second interval on, and stand still in the third. */
            static const int64_t offsets[] = {0, 100, -100, -190, 5};
            for (uint64_t i = 0; i < 5; i++) DO(OTF2_DefWriter_WriteClockOffset(d, start + 90 * i, offsets[i], 0));
        }
        DO(OTF2_Archive_CloseDefWriter(archive, d));
    }
    DO(OTF2_Archive_CloseDefFiles(archive));
    g = OTF2_Archive_GetGlobalDefWriter(archive);
    DO(OTF2_GlobalDefWriter_WriteClockProperties(g, resolution, offset, length, UINT64_MAX));
    text("");
    if (kind == STRINGS) {
        text("gr\xfcn"); text("gr\xf6n"); text("gr\xc3\xa4n"); text("one"); text("two"); text("a\nb\tc\"d\\"); text("\xff\xfe");
    }
    uint32_t name = text("name"), other = text("other");
    DO(OTF2_GlobalDefWriter_WriteSystemTreeNode(g, 0, name, other, kind == RINGS ? 1 : OTF2_UNDEFINED_SYSTEM_TREE_NODE));
    uint32_t deepest = 0;
    if (kind == DEEP || kind == RINGS)
        for (deepest = 1; deepest < (kind == DEEP ? 300 : 2); deepest++) {
            char level[20];
            snprintf(level, sizeof level, "level %u", deepest);
            DO(OTF2_GlobalDefWriter_WriteSystemTreeNode(g, deepest, text(level), name, deepest - 1));
        }
    if (deepest) deepest--;
    uint32_t groups = kind == MANY ? 300 : 3;
    for (uint32_t i = 0; i < groups; i++) {
        OTF2_LocationGroupRef creator = kind == RINGS ? (i + 1) % 3 : kind == DEEP && i ? i - 1 : OTF2_UNDEFINED_LOCATION_GROUP;
        OTF2_LocationGroupType type = creator == OTF2_UNDEFINED_LOCATION_GROUP ? OTF2_LOCATION_GROUP_TYPE_PROCESS : OTF2_LOCATION_GROUP_TYPE_ACCELERATOR;
        DO(OTF2_GlobalDefWriter_WriteLocationGroup(g, kind == HUGE_IDS ? 4294967290u + i : i, i ? name : 0, type, deepest, creator));
    }
    for (uint64_t l = 0; l < count; l++) {
        uint32_t group = kind == UNDEFINED && l ? 500 : kind == HUGE_IDS ? 4294967290u + l : l % groups;
        DO(OTF2_GlobalDefWriter_WriteLocation(g, ids[l], kind == UNDEFINED ? OTF2_UNDEFINED_STRING : name, l % 3 == 2 ? OTF2_LOCATION_TYPE_METRIC : OTF2_LOCATION_TYPE_CPU_THREAD, counts[l], group));
    }
    if (kind == RINGS)
        for (uint32_t i = 0; i < 3; i++) {
            DO(OTF2_GlobalDefWriter_WriteMetricInstance(g, i, (i + 1) % 3, 0, OTF2_SCOPE_LOCATION, 0));
            DO(OTF2_GlobalDefWriter_WriteCallpath(g, i, (i + 1) % 3, 0));
            DO(OTF2_GlobalDefWriter_WriteCallingContext(g, i, 0, 0, (i + 1) % 3));
        }
    if (kind != UNDEFINED)
        for (uint32_t i = 0; i < 3; i++)
            DO(OTF2_GlobalDefWriter_WriteRegion(g, regions[i], name, other, 0, OTF2_REGION_ROLE_FUNCTION, OTF2_PARADIGM_USER, 0, 0, 1, 2));
    if (kind == STRINGS || kind == ATTRIBUTES)
        for (uint32_t i = 0; i < 400; i++)
            DO(OTF2_GlobalDefWriter_WriteAttribute(g, i, i % 2 ? name : other, 0, kind == STRINGS ? OTF2_TYPE_STRING : 1 + i % 25));
    if (kind == STRINGS) DO(OTF2_GlobalDefWriter_WriteParameter(g, 0, name, OTF2_PARAMETER_TYPE_STRING));
    if (kind == METRICS) {
        uint32_t all[255];
        for (uint32_t i = 0; i < 255; i++) {
            all[i] = i;
            char member[20];
            snprintf(member, sizeof member, i % 50 == 3 ? "metric" : "member %u", i);
            DO(OTF2_GlobalDefWriter_WriteMetricMember(g, i, text(member), 0, OTF2_METRIC_TYPE_PAPI, OTF2_METRIC_ACCUMULATED_START + i % 3,
                i % 3 == 1 ? OTF2_TYPE_UINT64 : OTF2_TYPE_INT64 + i % 3, i % 2, (int64_t)i - 100, 0));
        }
        static const uint8_t members[] = {1, 2, 255, 101, 100, 3};
        for (uint32_t i = 0; i < 6; i++)
            DO(OTF2_GlobalDefWriter_WriteMetricClass(g, i, members[i], all, i % 3, OTF2_RECORDER_KIND_ABSTRACT));
        DO(OTF2_GlobalDefWriter_WriteMetricInstance(g, 6, 5, 1, OTF2_SCOPE_LOCATION, 2));
        DO(OTF2_GlobalDefWriter_WriteMetricInstance(g, 7, 5, 1, OTF2_SCOPE_LOCATION_GROUP, 1));
        DO(OTF2_GlobalDefWriter_WriteMetricInstance(g, 8, 5, 1, OTF2_SCOPE_SYSTEM_TREE_NODE, 0));
        DO(OTF2_GlobalDefWriter_WriteMetricInstance(g, 9, 5, 1, OTF2_SCOPE_GROUP, 0));
        DO(OTF2_GlobalDefWriter_WriteMetricClassRecorder(g, 5, 1));
        uint64_t of[] = {0, 2};
        DO(OTF2_GlobalDefWriter_WriteGroup(g, 0, name, OTF2_GROUP_TYPE_LOCATIONS, OTF2_PARADIGM_UNKNOWN, 0, 2, of));
        DO(OTF2_GlobalDefWriter_WriteGroup(g, 1, name, OTF2_GROUP_TYPE_METRIC, OTF2_PARADIGM_UNKNOWN, 0, 2, of));
    }
    DO(OTF2_Archive_CloseGlobalDefWriter(archive, g));
    DO(OTF2_Archive_Close(archive));
    return 0;
}
"#;

/// The kinds of archives that [`Programs::write_odd`] can write, in their order.
pub(crate) const ODD_KINDS: [&str; 15] = [
    "none",
    "empty",
    "huge-ids",
    "deep",
    "metrics",
    "attributes",
    "strings",
    "early",
    "late",
    "coarse",
    "fine",
    "many",
    "backward",
    "undefined",
    "rings",
];

/// Prints the markers of an archive.
const MARKS: &str = r#"
static OTF2_CallbackCode definition(void *user, OTF2_MarkerRef self, const char *group, const char *category, OTF2_MarkerSeverity severity) {
    (void)user;
    printf("definition\t%" PRIu32 "\t%s\t%s\t%d\n", self, group, category, severity);
    return OTF2_CALLBACK_SUCCESS;
}
static OTF2_CallbackCode marker(void *user, OTF2_TimeStamp time, OTF2_TimeStamp duration, OTF2_MarkerRef self, OTF2_MarkerScope scope,
                                uint64_t of, const char *text) {
    (void)user;
    printf("marker\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu32 "\t%d\t%" PRIu64 "\t%s\n", time, duration, self, scope, of, text);
    return OTF2_CALLBACK_SUCCESS;
}
int main(int argc, char **argv) {
    (void)argc;
    OTF2_Reader *reader = OTF2_Reader_Open(argv[1]);
    if (!reader) return 1;
    OTF2_Reader_SetSerialCollectiveCallbacks(reader);
    OTF2_MarkerReader *m = OTF2_Reader_GetMarkerReader(reader);
    OTF2_MarkerReaderCallbacks *c = OTF2_MarkerReaderCallbacks_New();
    OTF2_MarkerReaderCallbacks_SetDefMarkerCallback(c, definition);
    OTF2_MarkerReaderCallbacks_SetMarkerCallback(c, marker);
    uint64_t read;
    if (!m || OTF2_Reader_RegisterMarkerCallbacks(reader, m, c, NULL) || OTF2_Reader_ReadAllMarkers(reader, m, &read)) return 2;
    OTF2_Reader_Close(reader);
    return 0;
}
"#;

fn run(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}: run tests/run.sh"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The programs.
pub(crate) struct Programs {
    directory: tempfile::TempDir,
}

impl Programs {
    /// Compiles them.
    pub(crate) fn compile() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("writer", writer()),
            ("reader", reader()),
            ("mark", format!("{COMMON}{WRITER_HEAD}{MARK}")),
            ("marks", format!("{COMMON}{MARKS}")),
            ("odd", format!("{COMMON}{WRITER_HEAD}{ODD}")),
        ] {
            let source = directory.path().join(format!("{name}.c"));
            fs::write(&source, text).unwrap();
            let mut compiler = Command::new("cc");
            compiler.args(["-std=gnu11", "-O1", "-w"]);
            compiler
                .arg(&source)
                .arg("-o")
                .arg(directory.path().join(name));
            run(compiler.arg("-lopen-trace-format2"));
        }
        Self { directory }
    }

    /// Writes an archive with every event record; returns its anchor.
    pub(crate) fn write(
        &self,
        to: &Path,
        seed: u64,
        locations: u32,
        events: u64,
        resolution: u64,
    ) -> PathBuf {
        let mut writer = Command::new(self.directory.path().join("writer"));
        writer.arg(to);
        for number in [seed, locations.into(), events, resolution] {
            writer.arg(number.to_string());
        }
        run(&mut writer);
        to.join("traces.otf2")
    }

    /// Returns what the library reads, a line for each event: name, location, time, fields, `|`, additional values
    /// (attribute:type:bits), in its global order.
    pub(crate) fn read(&self, anchor: &Path) -> Vec<String> {
        let mut reader = Command::new(self.directory.path().join("reader"));
        reader.arg(anchor);
        let files = fs::read_dir(anchor.with_extension("")).unwrap();
        let names = files.map(|file| file.unwrap().path());
        let names = names.filter(|path| path.extension().is_some_and(|e| e == "evt"));
        let mut ids: Vec<u64> = names
            .map(|path| path.file_stem().unwrap().to_str().unwrap().parse().unwrap())
            .collect();
        ids.sort_unstable();
        reader.args(ids.iter().map(u64::to_string));
        run(&mut reader).lines().map(str::to_owned).collect()
    }

    /// Writes an archive of one of [`ODD_KINDS`]; returns its anchor.
    pub(crate) fn write_odd(&self, to: &Path, kind: usize) -> PathBuf {
        let mut odd = Command::new(self.directory.path().join("odd"));
        run(odd.arg(to).arg(kind.to_string()));
        to.join("traces.otf2")
    }

    /// Adds `count` markers to an archive.
    pub(crate) fn mark(&self, anchor: &Path, count: u64) {
        let mut mark = Command::new(self.directory.path().join("mark"));
        run(mark.arg(anchor).arg(count.to_string()));
    }

    /// Returns the markers of an archive, a line for each: `marker`, time, duration, definition, type of the scope,
    /// scope, text; of definitions: `definition`, number, group, category, severity; by tabs.
    pub(crate) fn marks(&self, anchor: &Path) -> Vec<String> {
        let mut marks = Command::new(self.directory.path().join("marks"));
        let text = run(marks.arg(anchor));
        text.lines().map(str::to_owned).collect()
    }

    /// Returns what `otf2-print` prints; it must not warn.
    pub(crate) fn print(&self, anchor: &Path, view: &[&str]) -> String {
        let (text, warnings) = self.print_and_warn(anchor, view);
        assert!(warnings.is_empty(), "{view:?}: {warnings:?}");
        text
    }

    /// Returns the output of `otf2-print`, and its warnings.
    pub(crate) fn print_and_warn(&self, anchor: &Path, view: &[&str]) -> (String, Vec<String>) {
        let mut print = Command::new("otf2-print");
        let directory = tempfile::tempdir().unwrap();
        print.args(view).arg(anchor).current_dir(directory.path());
        let output = print.output().expect("otf2-print: run tests/run.sh");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{view:?}: {errors}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (text, errors.lines().map(str::to_owned).collect())
    }
}
