/* Opening, closing and reading back OTF2 archives. Events are written by calling OTF2 itself. */
#ifndef COMPARE_OTF2_H
#define COMPARE_OTF2_H

#include <stdint.h>

#define COMPARE_OTF2_LANES 2
#define COMPARE_OTF2_REGIONS 64
/* OTF2's default chunk size for events, and as many chunks as Annals has bytes of buffer: 16 MiB. */
#define COMPARE_OTF2_CHUNK_BYTES (1024 * 1024)
#define COMPARE_OTF2_CHUNKS 16

struct compare_otf2;

/* Opens an archive below `directory` with one event writer for each of `lanes` locations. With
 * `fresh`, every chunk is memory that was never touched; without, chunks come out of a pool that
 * lives as long as the process and was touched before. NULL: see compare_otf2_error. */
struct compare_otf2 *compare_otf2_open(const char *directory, uint32_t lanes, int fresh);
/* The OTF2_EvtWriter of a lane, and an OTF2_AttributeList. */
void *compare_otf2_writer(struct compare_otf2 *archive, uint32_t lane);
void *compare_otf2_attributes(struct compare_otf2 *archive, uint32_t lane);
/* Flushes to disk, writes the definitions, closes. Returns the number of events by the writers' own count, or -1. */
int64_t compare_otf2_close(struct compare_otf2 *archive);
/* Events that OTF2's reader finds, or -1. */
int64_t compare_otf2_read(const char *anchor, uint32_t lanes);
/* What failed last. */
const char *compare_otf2_error(void);

#endif
