# Writes an archive with samples to the directory in its argument, by the reference library.
import sys
import otf2
from otf2.enums import Base, InterruptGeneratorMode

with otf2.writer.open(sys.argv[1], timer_resolution=1_000_000_000) as trace:
    d = trace.definitions
    node = d.system_tree_node("node", parent=None)
    group = d.location_group("process", system_tree_parent=node)
    regions = {name: d.region(name, source_file="heat.c") for name in ("main", "solve", "relax")}
    def context(name, line, parent=None):
        place = d.source_code_location(file="heat.c", line_number=line)
        return d.calling_context(region=regions[name], source_code_location=place, parent=parent)
    main = context("main", 10)
    solve = context("solve", 20, main)
    relax = context("relax", 30, solve)
    again = context("relax", 31, relax)
    timer = d.interrupt_generator("timer", interrupt_generator_mode=InterruptGeneratorMode.TIME, base=Base.DECIMAL, exponent=-3, period=2)
    counter = d.interrupt_generator("PAPI_TOT_INS", interrupt_generator_mode=InterruptGeneratorMode.COUNT, base=Base.DECIMAL, exponent=6, period=5)
    one = trace.event_writer("one", group=group)
    two = trace.event_writer("two", group=group)
    now = 1_000_000
    one.calling_context_enter(now, main, 1)
    for path, count in ((solve, 3), (relax, 5), (again, 2)):
        for _ in range(count):
            now += 2_000_000
            one.calling_context_sample(now, path, 1, timer)
    one.calling_context_enter(now + 10, solve, 1)
    one.calling_context_leave(now + 1010, solve)
    one.calling_context_leave(now + 2000, main)
    now = 1_000_000
    for _ in range(4):
        now += 1_500_000
        two.calling_context_sample(now, relax, 1, counter)
