// A callback of MPI is left in a way that the functions around it do not learn: unwinding KIND WAY. Each is done in five turns, and a message
// is exchanged after each.
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <mpi.h>
#include <pthread.h>
#include <stdexcept>
#include <string>

static std::string kind, way;
static jmp_buf place;
static int size;

extern "C" void rust_panics();
extern "C" bool rust_catches(void (*)());

static void leave() {
    if (way == "panic") rust_panics();
    if (way == "throw") throw std::runtime_error("from a callback");
    if (way == "longjmp") longjmp(place, 1);
    if (way == "exit") pthread_exit(nullptr);
    pthread_cancel(pthread_self());
    pthread_testcancel();
}

static void on_error(MPI_Comm *, int *, ...) { leave(); }
static void on_file_error(MPI_File *, int *, ...) { leave(); }
static void on_window_error(MPI_Win *, int *, ...) { leave(); }
static int on_delete(MPI_Comm, int, void *, void *) { leave(); return 0; }
static int on_copy(MPI_Comm, int, void *, void *, void *, int *) { leave(); return 0; }
static void on_reduce(void *, void *, int *, MPI_Datatype *) { leave(); }
static int on_query(void *, MPI_Status *) { leave(); return 0; }
static int on_free(void *) { return 0; }
static int on_cancel(void *, int) { return 0; }

static void call() {
    int value = 1, other = 2, key;
    if (kind == "handler") {
        MPI_Errhandler handler;
        MPI_Comm_create_errhandler(on_error, &handler);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
        MPI_Send(&value, 1, MPI_INT, size + 7, 1, MPI_COMM_WORLD);
    } else if (kind == "file") {
        MPI_Errhandler handler;
        MPI_File file;
        MPI_File_create_errhandler(on_file_error, &handler);
        MPI_File_set_errhandler(MPI_FILE_NULL, handler);
        MPI_File_open(MPI_COMM_SELF, "/no/such/file", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    } else if (kind == "window") {
        MPI_Errhandler handler;
        MPI_Win window;
        MPI_Win_create(&value, sizeof value, 1, MPI_INFO_NULL, MPI_COMM_SELF, &window);
        MPI_Win_create_errhandler(on_window_error, &handler);
        MPI_Win_set_errhandler(window, handler);
        MPI_Put(&value, 1, MPI_INT, 7, 0, 1, MPI_INT, window);
    } else if (kind == "delete") {
        MPI_Comm one;
        MPI_Comm_dup(MPI_COMM_SELF, &one);
        MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &key, nullptr);
        MPI_Comm_set_attr(one, key, &value);
        MPI_Comm_delete_attr(one, key);
    } else if (kind == "copy") {
        MPI_Comm one, two;
        MPI_Comm_dup(MPI_COMM_SELF, &one);
        MPI_Comm_create_keyval(on_copy, MPI_COMM_NULL_DELETE_FN, &key, nullptr);
        MPI_Comm_set_attr(one, key, &value);
        MPI_Comm_dup(one, &two);
    } else if (kind == "op") {
        MPI_Op operation;
        MPI_Op_create(on_reduce, 1, &operation);
        MPI_Reduce_local(&value, &other, 1, MPI_INT, operation);
    } else {
        MPI_Request request;
        MPI_Grequest_start(on_query, on_free, on_cancel, nullptr, &request);
        MPI_Grequest_complete(request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void *thread(void *) {
    call();
    return nullptr;
}

int main(int count, char **arguments) {
    int level, rank, left = 0, got = -1;
    kind = count > 2 ? arguments[1] : "handler";
    way = count > 2 ? arguments[2] : "throw";
    bool has_threads = way == "exit" || way == "cancel";
    MPI_Init_thread(&count, &arguments, has_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (volatile int turn = 0; turn < 5; turn = turn + 1) {
        if (way == "throw") {
            try {
                call();
            } catch (const std::exception &) {
                left++;
            }
        } else if (way == "panic") {
            left += rust_catches(call);
        } else if (way == "longjmp") {
            if (setjmp(place) == 0) call();
            else left++;
        } else {
            pthread_t other;
            void *result = nullptr;
            pthread_create(&other, nullptr, thread, nullptr);
            pthread_join(other, &result);
            left += way == "exit" || result == PTHREAD_CANCELED;
        }
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 2, &got, 1, MPI_INT, (rank + size - 1) % size, 2,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    printf("rank %d: left %d times, got %d\n", rank, left, got);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
