// Causes of waiting in templates that are inlined. `message`: rank 2 assembles before it sends to rank 1; `threads`: a thread of rank 2 does,
// and its other one waits for it before a barrier. Lines that take the extra time are marked.
#include <mpi.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

static int rank;
static volatile double sink;

template <typename Real, typename Step>
inline Real swept(const std::vector<Real>& cells, Step step) {
    Real sum{};
    for (const Real& cell : cells) sum += step(cell);  // extra
    return sum;
}

template <typename Real>
class Solver {
public:
    explicit Solver(std::size_t count) : cells(count) { std::iota(cells.begin(), cells.end(), Real{1}); }

    void assemble(int turns) {
        for (int turn = 0; turn < turns; turn++)
            sink = sink + swept(cells, [turn](const Real& cell) { return std::sqrt(cell + turn) / (Real{1} + cell); });  // extra
    }

    void solve(int turns) {
        for (int turn = 0; turn < turns; turn++)
            sink = sink + std::inner_product(cells.begin(), cells.end(), cells.begin(), Real{turn % 2 ? Real{1} : Real{0}});
    }

private:
    std::vector<Real> cells;
};

static void message(Solver<double>& solver) {
    int value = rank;
    solver.solve(200);
    if (rank == 2) {
        solver.assemble(200);
        MPI_Send(&value, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(&value, 1, MPI_INT, 2, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void threads(Solver<double>& solver) {
    std::thread second([] {
        Solver<double> own(20000);
        own.solve(100);
        if (rank == 2) own.assemble(400);
    });
    solver.solve(100);
    second.join();
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    Solver<double> solver(20000);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int step = 0; step < 20; step++) std::strcmp(argv[1], "threads") ? message(solver) : threads(solver);
    MPI_Finalize();
}
