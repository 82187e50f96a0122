// Storage that fails: preloaded into a program, it counts the calls that change files below a directory, and lets one of
// them go wrong.
//
//   FAULTS the fault, and the number of its call (from 1): count N nothing kill N the process is killed before the call
//   tear N the process is killed after the call, of which a write writes only half EIO N the call fails with that
//   error; so do ENOSPC, EDQUOT full N that call and all later ones that need space fail with ENOSPC short N writes
//   from there on write half, and every third call is interrupted (EINTR) FAULTS_UNDER the directory FAULTS_PROGRAM the
//   only program that is meant, by its file's name; without it, all are FAULTS_LOG a file that gets a line for each
//   call

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum mode { NONE, COUNT, KILL, TEAR, FAIL, FULL, SHORT };
enum verdict { PASS, FAILS, TEARS, SHORTENS };

static atomic_long calls;
static enum mode mode;
static long at;
static int error_code;
static const char *under;
static size_t under_length;
static int log_file = -1;

__attribute__((constructor)) static void begin(void) {
    const char *faults = getenv("FAULTS");
    const char *log = getenv("FAULTS_LOG");
    const char *program = getenv("FAULTS_PROGRAM");
    char name[16] = "";
    under = getenv("FAULTS_UNDER");
    if (!faults || !under || sscanf(faults, "%15s %ld", name, &at) != 2)
        return;
    if (program && strcmp(program, program_invocation_short_name))
        return;
    under_length = strlen(under);
    if (log)
        log_file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    struct { const char *name; enum mode mode; int error; } known[] = {
        {"count", COUNT, 0},         {"kill", KILL, 0},      {"tear", TEAR, 0},
        {"EIO", FAIL, EIO},          {"ENOSPC", FAIL, ENOSPC}, {"EDQUOT", FAIL, EDQUOT},
        {"full", FULL, ENOSPC},      {"short", SHORT, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name)) {
            mode = known[i].mode;
            error_code = known[i].error;
        }
}

static int is_under(const char *path) {
    return !strncmp(path, under, under_length) && (path[under_length] == '/' || !path[under_length]);
}

static int file_name(int file, char *name) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, name, PATH_MAX - 1);
    if (length < 0)
        return 0;
    name[length] = 0;
    return 1;
}

static void end(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

// What is to become of a call. `space` says that it needs some, `can_wait` that it may be interrupted.
static enum verdict judge(const char *name, int directory, const char *path, int space, int can_wait) {
    char where[PATH_MAX + 1] = "";
    if (mode == NONE)
        return PASS;
    int saved = errno;
    if (path && path[0] == '/')
        snprintf(where, sizeof where, "%s", path);
    else if (directory == AT_FDCWD || !file_name(directory, where))
        return errno = saved, PASS;
    errno = saved;
    if (!is_under(where))
        return PASS;
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (log_file >= 0) {
        char line[PATH_MAX + 64];
        int length = snprintf(line, sizeof line, "%s %s %s\n", name, where, path ? path : "");
        syscall(SYS_write, log_file, line, length);
    }
    switch (mode) {
    case KILL:
        if (number == at)
            end();
        return PASS;
    case TEAR:
        return number == at ? TEARS : PASS;
    case FAIL:
        if (number != at)
            return PASS;
        errno = error_code;
        return FAILS;
    case FULL:
        if (number < at || !space)
            return PASS;
        errno = error_code;
        return FAILS;
    case SHORT:
        if (number < at || !can_wait)
            return PASS;
        if (number % 3 == 0) {
            errno = EINTR;
            return FAILS;
        }
        return SHORTENS;
    default:
        return PASS;
    }
}

static long done(enum verdict verdict, long outcome) {
    if (verdict == TEARS)
        end();
    return outcome;
}

static size_t part(enum verdict verdict, size_t length) {
    return verdict == PASS || length < 2 ? length : length / 2;
}

ssize_t write(int file, const void *bytes, size_t length) {
    enum verdict verdict = judge("write", file, NULL, 1, 1);
    if (verdict == FAILS)
        return -1;
    return done(verdict, syscall(SYS_write, file, bytes, part(verdict, length)));
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t offset) {
    enum verdict verdict = judge("pwrite", file, NULL, 1, 1);
    if (verdict == FAILS)
        return -1;
    return done(verdict, syscall(SYS_pwrite64, file, bytes, part(verdict, length), offset));
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t offset) {
    return pwrite64(file, bytes, length, offset);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t length, unsigned flags) {
    enum verdict verdict = judge("copy_file_range", to, NULL, 1, 0);
    if (verdict == FAILS)
        return -1;
    return done(verdict, syscall(SYS_copy_file_range, from, from_at, to, to_at, part(verdict, length), flags));
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t length) {
    enum verdict verdict = judge("sendfile", to, NULL, 1, 0);
    if (verdict == FAILS)
        return -1;
    return done(verdict, syscall(SYS_sendfile, to, from, at, part(verdict, length)));
}

int fsync(int file) {
    enum verdict verdict = judge("fsync", file, NULL, 0, 1);
    return verdict == FAILS ? -1 : done(verdict, syscall(SYS_fsync, file));
}

int fdatasync(int file) {
    enum verdict verdict = judge("fdatasync", file, NULL, 0, 1);
    return verdict == FAILS ? -1 : done(verdict, syscall(SYS_fdatasync, file));
}

int ftruncate64(int file, off64_t length) {
    enum verdict verdict = judge("ftruncate", file, NULL, 0, 1);
    return verdict == FAILS ? -1 : done(verdict, syscall(SYS_ftruncate, file, length));
}

int posix_fallocate64(int file, off64_t offset, off64_t length) {
    enum verdict verdict = judge("fallocate", file, NULL, 1, 0);
    if (verdict == FAILS)
        return errno;
    return done(verdict, syscall(SYS_fallocate, file, 0, offset, length) ? errno : 0);
}

int posix_fallocate(int file, off_t offset, off_t length) {
    return posix_fallocate64(file, offset, length);
}

static int open_at(int directory, const char *path, int flags, mode_t rights) {
    enum verdict verdict = PASS;
    if (flags & (O_CREAT | O_TRUNC) || (flags & O_TMPFILE) == O_TMPFILE)
        verdict = judge("open", directory, path, 1, 1);
    return verdict == FAILS ? -1 : done(verdict, syscall(SYS_openat, directory, path, flags, rights));
}

#define RIGHTS(flags)                                                      \
    va_list rest;                                                          \
    va_start(rest, flags);                                                 \
    mode_t rights = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
    va_end(rest)

int open(const char *path, int flags, ...) {
    RIGHTS(flags);
    return open_at(AT_FDCWD, path, flags, rights);
}

int open64(const char *path, int flags, ...) {
    RIGHTS(flags);
    return open_at(AT_FDCWD, path, flags | O_LARGEFILE, rights);
}

int openat64(int directory, const char *path, int flags, ...) {
    RIGHTS(flags);
    return open_at(directory, path, flags | O_LARGEFILE, rights);
}

int rename(const char *from, const char *to) {
    enum verdict verdict = judge("rename", AT_FDCWD, to, 0, 0);
    return verdict == FAILS ? -1 : done(verdict, syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int unlink(const char *path) {
    enum verdict verdict = judge("unlink", AT_FDCWD, path, 0, 0);
    return verdict == FAILS ? -1 : done(verdict, syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

int unlinkat(int directory, const char *path, int flags) {
    enum verdict verdict = judge("unlinkat", directory, path, 0, 0);
    return verdict == FAILS ? -1 : done(verdict, syscall(SYS_unlinkat, directory, path, flags));
}

int rmdir(const char *path) {
    enum verdict verdict = judge("rmdir", AT_FDCWD, path, 0, 0);
    return verdict == FAILS ? -1 : done(verdict, syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}

int mkdir(const char *path, mode_t rights) {
    enum verdict verdict = judge("mkdir", AT_FDCWD, path, 1, 0);
    return verdict == FAILS ? -1 : done(verdict, syscall(SYS_mkdirat, AT_FDCWD, path, rights));
}
