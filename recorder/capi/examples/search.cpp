// A parallel search in C++: regions by scope, left by exceptions too, and events with values of any type.
//
//     c++ -std=c++11 search.cpp -o search $(pkg-config --cflags --libs annals) -lpthread
//     ./search DIRECTORY
//     trace-merge DIRECTORY -o run.annals; trace-cli regions run.annals
#include <csignal>
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <annals.hpp>

namespace {

const unsigned threads = 3;
const unsigned depth = 6;

annals_region search, visit;
annals_event_type found, failed, asked;
annals_source oracle;
std::uint64_t questions;

struct dead_end : std::runtime_error {
    dead_end() : std::runtime_error("dead end") {}
};

void on_signal(int number) { annals::raise(asked, number); }

// Ticks of a clock that only this program has: the questions asked so far.
std::uint64_t read_questions(void *data)
{
    return __atomic_add_fetch(static_cast<std::uint64_t *>(data), 1, __ATOMIC_RELAXED);
}

unsigned descend(unsigned level, unsigned path)
{
    annals::scope here(visit);
    if (level == depth) {
        if (path % 8 == 7)
            throw dead_end();
        return 1;
    }
    unsigned leaves = 0;
    for (unsigned side = 0; side < 2; side++) {
        try {
            leaves += descend(level + 1, path * 2 + side);
        } catch (const dead_end &end) {
            // The scopes of the frames that are gone have left their regions.
            annals::raise(failed, end.what(), path);
        }
    }
    return leaves;
}

void run(unsigned number)
{
    annals::scope here(search);
    const unsigned leaves = descend(0, 1);
    std::raise(SIGUSR1);
    annals::raise(found, std::string("thread ") + std::to_string(number), std::uint64_t(leaves),
                  number == 0 ? annals_absent() : annals_f64(0.5), search);
}

annals_event_type define(annals_recorder recorder, const char *name,
                         const std::vector<annals_element> &elements)
{
    annals_event_type_spec spec = annals_event_type_spec();
    spec.size = sizeof spec;
    spec.name = name;
    spec.verbosity = ANNALS_VERBOSITY_USER_DETAIL;
    spec.elements = elements.data();
    spec.element_count = elements.size();
    annals_event_type event_type;
    annals::check(annals_add_event_type(recorder, &spec, &event_type));
    return event_type;
}

annals_element element(const char *name, annals_type type)
{
    annals_element element = annals_element();
    element.name = name;
    element.type = type;
    return element;
}

} // namespace

int main(int argc, char **argv)
try {
    if (argc != 2) {
        std::cerr << "usage: search DIRECTORY\n";
        return 2;
    }
    const annals_setting settings[] = {{"ANNALS_DIR", argv[1]}, {"ANNALS_RANK", "0"}};
    annals_recorder recorder;
    annals::check(annals_start(settings, 2, ANNALS_ENVIRONMENT_WINS, &recorder));
    annals::check(annals_add_region(recorder, "search", &search));
    annals::check(annals_add_region(recorder, "visit", &visit));

    annals_element sure = element("sure", ANNALS_TYPE_F64);
    sure.is_optional = 1;
    annals_element where = element("where", ANNALS_TYPE_U32);
    where.reference = ANNALS_REFERENCE_REGION;
    found = define(recorder, "found",
                   {element("by", ANNALS_TYPE_STRING), element("leaves", ANNALS_TYPE_U64), sure,
                    where});
    failed = define(recorder, "failed",
                    {element("why", ANNALS_TYPE_STRING), element("path", ANNALS_TYPE_U32)});
    asked = define(recorder, "asked", {element("signal", ANNALS_TYPE_I32)});
    const annals_event_type question = define(recorder, "question", {});

    annals_clock_spec clock = annals_clock_spec();
    clock.size = sizeof clock;
    clock.name = "questions";
    clock.ticks_per_second = 1000;
    clock.read = read_questions;
    clock.data = &questions;
    annals_source_spec source = annals_source_spec();
    source.size = sizeof source;
    source.name = "oracle";
    annals::check(annals_add_clock(recorder, &clock, &source.clock));
    annals::check(annals_add_source(recorder, &source, &oracle));

    std::signal(SIGUSR1, on_signal);
    std::vector<std::thread> workers;
    for (unsigned number = 0; number < threads; number++)
        workers.emplace_back(run, number);
    for (unsigned n = 0; n < 5; n++)
        annals::raise_on(oracle, question);
    annals_report_dropped(oracle, question, 2);
    for (std::thread &worker : workers)
        worker.join();

    annals_statistics statistics = annals_statistics();
    statistics.size = sizeof statistics;
    annals::check(annals_finish(recorder, &statistics));
    std::cout << "raised " << statistics.raised << ", dropped " << statistics.dropped
              << ", misused " << statistics.misused << "\n";
    return 0;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
