// Counts the ways to place queens on a board so that no two attack each other.
//
// usage: queens [SIZE]
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Board {
    int size;
    std::vector<int> column_of_row;

    bool is_free(int row, int column) const {
        for (int above = 0; above < row; above++) {
            int other = column_of_row[above];
            if (other == column || std::abs(other - column) == row - above) return false;
        }
        return true;
    }

    long place(int row) {
        if (row == size) return 1;
        long ways = 0;
        for (int column = 0; column < size; column++) {
            if (!is_free(row, column)) continue;
            column_of_row[row] = column;
            ways += place(row + 1);
        }
        return ways;
    }
};

static long count(int size) {
    Board board{size, std::vector<int>(size)};
    return board.place(0);
}

int main(int argc, char **argv) {
    int size = argc > 1 ? std::atoi(argv[1]) : 8;
    std::printf("%ld ways on a board of %d\n", count(size), size);
    return 0;
}
