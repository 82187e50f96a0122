// A place of the grid of `paths.cpp`. Its functions are so short that recording a call of one takes longer.
#pragma once

class Point {
    int x_, y_;

public:
    Point(int x, int y) : x_(x), y_(y) {}
    int x() const { return x_; }
    int y() const { return y_; }
    int place(int width) const { return y() * width + x(); }
    bool operator==(const Point &other) const { return x_ == other.x_ && y_ == other.y_; }
};
