"""Recording from Python."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ._programs import library

if TYPE_CHECKING:
    from . import _native

F = TypeVar("F", bound=Callable[..., Any])

_TYPES = {int: "int", float: "float", str: "str", bytes: "bytes"}

#: The recorder that functions of this module use.
_current: Recorder | None = None


class Recorder:
    """Records this process.

    A process has one recorder. Under ``trace-cli record``, and when a library or another ``Recorder`` has started one already, this
    object joins it: then all events are in one recording, and it is finished by who started it, or at the end of the process.

    As a context manager it finishes the recording at the end. Without that, the end of the process finishes it; after ``kill -9`` what
    was recorded is still there.

    Args:
        directory: Directory of the recording.
        settings: Others, by the names of their environment variables without ``ANNALS_`` and in lower case, such as
            ``buffer="64M"`` or ``filter="off:helper*"``. Variables in the environment override them.

    Raises:
        ValueError: A setting has no usable value.
        OSError: The recording cannot be created.
    """

    def __init__(self, directory: str | os.PathLike[str] = "annals-run", **settings: object) -> None:
        from . import _native

        global _current
        given = [("ANNALS_DIR", os.fspath(directory))]
        given += [(f"ANNALS_{name.upper()}", str(value)) for name, value in settings.items()]
        self._native: _native.NativeRecorder = _native.NativeRecorder(
            library("libannals.so"), given, _is_recorded()
        )
        self._regions: dict[tuple[str, str, int], Any] = {}
        self._monitors = False
        if "asyncio" in sys.modules:
            from . import _tasks

            _tasks.follow()
        if self._native.is_own:
            self.add_property("python", sys.version.split()[0])
        _current = self

    # ---- Regions ----

    def region(self, name: str, *, file: str = "", line: int = 0) -> Region:
        """Returns a region, to be entered by ``with``; any number of times, by any thread, also inside itself.

        In a coroutine that an asyncio task runs it is at the task's location, else at that of the thread.
        """
        key = (name, file, line)
        found = self._regions.get(key)
        if found is None:
            found = self._regions.setdefault(key, self._native.region(name, file, line))
        return found

    @overload
    def traced(self, function: F) -> F: ...

    @overload
    def traced(self, *, name: str | None = None) -> Callable[[F], F]: ...

    def traced(self, function: Any = None, *, name: str | None = None) -> Any:
        """Decorates a function, a coroutine, a generator or an asynchronous generator: its calls are a region.

        The region of a generator is open while its own code is at work, not while it waits for the next value to be asked for.
        """
        if function is None:
            return functools.partial(self.traced, name=name)
        return _traced(function, name, lambda: self)

    # ---- Events ----

    def metric(self, name: str, unit: str = "", type: type = float) -> Metric:  # noqa: A002
        """Defines a metric: a value that changes over time. ``type``: float or int."""
        if type not in (int, float):
            raise TypeError("a metric's type is int or float")
        return Metric(self._native.metric(name, unit, _TYPES[type]))

    def event_type(self, name: str, /, description: str = "", **elements: type) -> EventType:
        """Defines a type of events with typed elements: ``event_type("request", path=str, size=int)``.

        Types are int (64 bits), float, str and bytes. A value may be ``None``: absent.
        """
        named = []
        for element, kind in elements.items():
            if kind not in _TYPES:
                raise TypeError(f"{element}: an element's type is int, float, str or bytes, not {kind!r}")
            named.append((element, _TYPES[kind]))
        return EventType(self._native.event_type(name, description, named), [element for element, _ in named])

    # ---- Functions ----

    def record_functions(
        self,
        modules: str | None = None,
        *,
        exclude: str | None = None,
        standard_library: bool = False,
        c_functions: bool = False,
    ) -> None:
        """Records calls of Python functions from now on, in all threads, by ``sys.monitoring`` (Python 3.12 and later).

        A function that has begun already is recorded from its next call on; a generator or coroutine from where it resumes.

        Args:
            modules: Globs of modules, separated by commas. Default: all but the standard library.
            exclude: Globs of modules that are left out.
            standard_library: Whether functions of the standard library are recorded, too.
            c_functions: Whether functions in C that recorded functions call are recorded, too.

        Raises:
            RuntimeError: Python is older, or another profiler uses ``sys.monitoring.PROFILER_ID``.
        """
        from . import _native

        _native.monitor(modules, exclude, standard_library, c_functions)
        self._monitors = True

    def stop_functions(self) -> None:
        """Records no functions from now on."""
        from . import _native

        _native.stop_monitoring()
        self._monitors = False

    # ---- The recording ----

    @property
    def path(self) -> Path:
        """Path of the recording."""
        return Path(self._native.path)

    @property
    def is_own(self) -> bool:
        """Whether this object started the recording."""
        return self._native.is_own

    def statistics(self) -> dict[str, Any]:
        """Returns how many events were ``raised``, ``dropped`` and ``suppressed``, and more."""
        return self._native.statistics()

    def add_property(self, key: str, value: str) -> None:
        """Stores a property of the recording, such as a version or a parameter."""
        self._native.add_property(key, value)

    def pause(self) -> None:
        """Records nothing until ``resume()``."""
        self._native.pause()

    def resume(self) -> None:
        """Records again after ``pause()``."""
        self._native.resume()

    def snapshot(self) -> Path:
        """Writes what the flight recorder has (``overflow="overwrite"``) to a snapshot; returns its path."""
        return Path(self._native.snapshot())

    def finish(self) -> dict[str, Any]:
        """Finishes the recording, if this object started it; returns its statistics. Later events are counted, not recorded.

        In a forked child there is nothing to finish: its parent has the recording, and the result is empty.
        """
        global _current
        if self._monitors:
            self.stop_functions()
        if _current is self:
            _current = None
        if not self._native.is_here:
            return {}
        if not self._native.is_own:
            return self.statistics()
        return self._native.finish()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()


#: What ``Recorder.region()`` returns: a context manager.
Region = Any


class Metric:
    """A metric, as ``Recorder.metric()`` defines it."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.EventType) -> None:
        self._native = native

    def record(self, value: float) -> None:
        """Records its value from now on."""
        self._native.record((value,))


class EventType:
    """A type of events, as ``Recorder.event_type()`` defines it."""

    __slots__ = ("_names", "_native")

    def __init__(self, native: _native.EventType, names: list[str]) -> None:
        self._native = native
        self._names = names

    def record(self, **values: Any) -> None:
        """Records an event with these values. Elements without a value are absent.

        Raises:
            TypeError: There is no such element, or a value is of another type.
        """
        given = tuple([values.pop(name, None) for name in self._names])
        if values:
            raise TypeError(f"the event type has no element {', '.join(map(repr, values))}; it has {self._names}")
        self._native.record(given)


# ---- Without a recorder at hand ----


class _Nothing:
    """A region where nothing is recorded."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


_NOTHING = _Nothing()
#: The process that loaded this module; a forked child of it has another number.
_PROCESS = os.getpid()


def _is_recorded() -> bool:
    return "libannals_mpi.so" in os.environ.get("LD_PRELOAD", "") or "libannals_instrument.so" in os.environ.get(
        "LD_PRELOAD", ""
    )


def _forget() -> None:
    # A forked child records nothing before it makes a recorder.
    global _current
    _current = None


os.register_at_fork(after_in_child=_forget)


def _recorder() -> Recorder | None:
    if _current is None and _is_recorded() and os.getpid() == _PROCESS:
        return Recorder()
    return _current


def region(name: str) -> Any:
    """Returns a region of the process's recorder, to be entered by ``with``. Without a recorder, nothing is recorded.

    Under ``trace-cli record`` there always is one.
    """
    recorder = _recorder()
    return _NOTHING if recorder is None else recorder.region(name)


@overload
def traced(function: F) -> F: ...


@overload
def traced(*, name: str | None = None) -> Callable[[F], F]: ...


def traced(function: Any = None, *, name: str | None = None) -> Any:
    """Decorates a function, like ``Recorder.traced()``, with the recorder that the process has when it is called."""
    if function is None:
        return functools.partial(traced, name=name)
    return _traced(function, name, _recorder)


def _traced(function: Any, name: str | None, find: Callable[[], Recorder | None]) -> Any:
    if not callable(function) or inspect.isclass(function):
        raise TypeError(f"traced: {function!r} is no function: decorate functions and methods, below @classmethod, and name them by name=")
    named = function if hasattr(function, "__qualname__") else type(function)
    called = name or f"{named.__module__}.{named.__qualname__}"
    code = getattr(inspect.unwrap(function), "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)

    def of_call() -> Any:
        recorder = find()
        return _NOTHING if recorder is None else recorder.region(called, file=file, line=line)

    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def traced_async_generator(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            step, argument = generator.asend, None
            try:
                while True:
                    try:
                        with of_call():
                            value = await step(argument)
                    except StopAsyncIteration:
                        return
                    try:
                        step, argument = generator.asend, (yield value)
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step, argument = generator.athrow, error
            finally:
                await generator.aclose()

        return traced_async_generator
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def traced_coroutine(*args: Any, **kwargs: Any) -> Any:
            with of_call():
                return await function(*args, **kwargs)

        return traced_coroutine
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def traced_generator(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            step, argument = generator.send, None
            try:
                while True:
                    try:
                        with of_call():
                            value = step(argument)
                    except StopIteration as end:
                        return end.value
                    try:
                        step, argument = generator.send, (yield value)
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step, argument = generator.throw, error
            finally:
                generator.close()

        return traced_generator

    @functools.wraps(function)
    def traced_function(*args: Any, **kwargs: Any) -> Any:
        with of_call():
            return function(*args, **kwargs)

    return traced_function
