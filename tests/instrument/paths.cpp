// Shortest paths through grids, with containers and templates. Most time is in `roughness`.
//
// usage: paths [GRIDS]
#include "point.hpp"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <utility>
#include <vector>

static const int WIDTH = 24;

// How hard a place is to cross.
__attribute__((noinline)) int roughness(const std::vector<int> &heights, Point at) {
    unsigned long sum = 1 + heights[at.place(WIDTH)];
    for (int round = 0; round < 3000; round++) sum = sum * 6364136223846793005ul + (sum >> 33);
    return 1 + int(sum >> 60);
}

template <typename Visit> void for_each_neighbour(Point at, Visit visit) {
    if (at.x() > 0) visit(Point(at.x() - 1, at.y()));
    if (at.y() > 0) visit(Point(at.x(), at.y() - 1));
    if (at.x() + 1 < WIDTH) visit(Point(at.x() + 1, at.y()));
    if (at.y() + 1 < WIDTH) visit(Point(at.x(), at.y() + 1));
}

// Dijkstra's algorithm.
__attribute__((noinline)) long shortest(const std::vector<int> &heights) {
    using Entry = std::pair<long, int>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> open;
    std::vector<long> least(WIDTH * WIDTH, -1);
    open.push({0, 0});
    while (!open.empty()) {
        long length = open.top().first;
        int place = open.top().second;
        open.pop();
        if (least[place] >= 0) continue;
        least[place] = length;
        Point at(place % WIDTH, place / WIDTH);
        for_each_neighbour(at, [&](Point next) {
            if (least[next.place(WIDTH)] < 0) open.push({length + roughness(heights, next), next.place(WIDTH)});
        });
    }
    return least.back();
}

int main(int argc, char **argv) {
    int grids = argc > 1 ? std::atoi(argv[1]) : 20;
    std::map<std::string, long> lengths;
    unsigned seed = 1;
    for (int grid = 0; grid < grids; grid++) {
        std::vector<int> heights(WIDTH * WIDTH);
        for (int &height : heights) height = int((seed = seed * 1664525u + 1013904223u) >> 24);
        lengths["grid " + std::to_string(grid)] = shortest(heights);
    }
    long sum = 0;
    for (const auto &[name, length] : lengths) sum += length;
    std::printf("%ld\n", sum);
}
