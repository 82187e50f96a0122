// A program whose functions have long names: templates, operators, lambdas, types that the standard library adds.

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace mesh {

struct Cell {
    double value;
    std::string name;
    bool operator<(const Cell &other) const { return value < other.value; }
};

template <class T> struct Grid {
    std::vector<T> cells;
    template <class F> void each(F work)
    {
        for (auto &cell : cells) {
            work(cell);
        }
    }
    void sort() { std::sort(cells.begin(), cells.end()); }
};

template <auto N> int constant() { return N; }

template <class... A> auto sum(A... each) -> decltype((each + ...)) { return (each + ...); }

} // namespace mesh

int main()
{
    mesh::Grid<mesh::Cell> grid;
    for (int number = 0; number < 9; number++) {
        grid.cells.push_back({double(9 - number), "cell"});
    }
    grid.sort();
    std::map<std::string, std::vector<int>> lists;
    grid.each([&](mesh::Cell &cell) { lists[cell.name].push_back(2); });
    std::function<void(int)> work = [&](int) {};
    work(1);
    std::swap(grid.cells[0], grid.cells[1]);
    return mesh::constant<3>() + int(mesh::sum(1, 2.0)) == 6 ? 0 : 1;
}
