/* One-sided operations on windows, and files. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, got[4] = {0}, sum = 0, one = 1;
    int *memory;
    MPI_Win win;
    MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_set_name(win, "numbers");
    for (int i = 0; i < 4; i++) memory[i] = 0;
    MPI_Win_fence(0, win);
    MPI_Put(&rank, 1, MPI_INT, next, 0, 1, MPI_INT, win);
    MPI_Put(&rank, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win);
    if (rank == 1) usleep(100000);
    MPI_Win_fence(0, win);
    MPI_Get(got, 4, MPI_INT, next, 0, 4, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Accumulate(&one, 1, MPI_INT, next, 1, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_fence(0, win);
    MPI_Win_lock_all(0, win);
    MPI_Fetch_and_op(&one, &sum, MPI_INT, 0, 2, MPI_SUM, win);
    MPI_Win_flush(0, win);
    MPI_Request request;
    MPI_Rput(&rank, 1, MPI_INT, next, 3, 1, MPI_INT, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    int result = got[0] + memory[1] + (rank ? 0 : memory[2]) + 100 * memory[3];
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
    MPI_File file;
    if (MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == 0) {
        MPI_Status status;
        int count = 0, back[2] = {0};
        int pair[2] = {rank, -rank};
        MPI_File_write_at_all(file, rank * sizeof pair, pair, 2, MPI_INT, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        MPI_File_sync(file);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_File_read_at(file, next * sizeof pair, back, 2, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_iread_at(file, rank * sizeof pair, back + 1, 1, MPI_INT, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_File_close(&file);
        result += 1000 * back[0] + back[1] + count;
    }
    printf("rank %d: %d\n", rank, result);
    MPI_Finalize();
    return 0;
}
