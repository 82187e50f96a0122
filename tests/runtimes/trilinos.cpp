// A program with Debian's Kokkos: kernels with names, in a region.
#include <Kokkos_Core.hpp>
#include <cstdio>

int main(int argc, char **argv) {
    Kokkos::initialize(argc, argv);
    {
        Kokkos::View<double *> field("field", 1000);
        Kokkos::View<double *> other("other", 1000);
        double sum = 0;
        for (int step = 0; step < 4; step++) {
            Kokkos::Profiling::pushRegion("step");
            Kokkos::parallel_for("relax", 1000, KOKKOS_LAMBDA(const int i) { field(i) += i; });
            Kokkos::parallel_reduce("norm", 1000, KOKKOS_LAMBDA(const int i, double &part) { part += field(i); }, sum);
            Kokkos::deep_copy(other, field);
            Kokkos::Profiling::popRegion();
        }
        std::printf("%.0f\n", sum);
    }
    Kokkos::finalize();
}
