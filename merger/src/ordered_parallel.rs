//! Work that several threads do ahead of the caller, which gets the results in order.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rayon::ThreadPool;

/// Most threads that work ahead: each has a decoded chunk or two in its hands.
const MOST_THREADS: usize = 8;

struct State<R> {
    next: usize,
    /// Results that were not taken yet.
    done: BTreeMap<usize, R>,
    taken: usize,
    is_over: bool,
}

struct Shared<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

impl<R> Shared<R> {
    const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                next: 0,
                done: BTreeMap::new(),
                taken: 0,
                is_over: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits until fewer than `most` are worked on or wait. Returns the number of the next one, or `None` if the work is
    /// over.
    fn next_number(&self, most: usize) -> Option<usize> {
        let mut state = self.lock();
        while !state.is_over && state.next >= state.taken + most {
            state = self.wait(state);
        }
        (!state.is_over).then_some(state.next)
    }

    fn put(&self, number: usize, result: R) {
        self.lock().done.insert(number, result);
        self.changed.notify_all();
    }

    /// Waits for the result with a number; the previous ones were taken. Returns `None` if there will be no result.
    fn take(&self, number: usize) -> Option<R> {
        let mut state = self.lock();
        let result = loop {
            if let Some(result) = state.done.remove(&number) {
                break Some(result);
            }
            if state.is_over {
                break None;
            }
            state = self.wait(state);
        };
        state.taken = number + 1;
        drop(state);
        self.changed.notify_all();
        result
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<R>>) -> MutexGuard<'a, State<R>> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the work when it is dropped, whatever the reason: no thread waits forever.
struct EndOnDrop<'a, R>(&'a Shared<R>);

impl<R> Drop for EndOnDrop<'_, R> {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

/// Calls `work` with every number below `count` in `threads` threads, and `take` with its results, in order. In addition to
/// those that are worked on, about `waiting` results wait.
///
/// # Errors
/// The first of `take`; later numbers are not worked on.
pub(crate) fn map_ordered<R: Send, E>(
    count: usize,
    threads: usize,
    waiting: usize,
    work: impl Fn(usize) -> R + Sync,
    mut take: impl FnMut(usize, R) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.min(MOST_THREADS).min(count);
    let waiting = waiting.min(threads);
    if threads < 2 {
        return (0..count).try_for_each(|number| take(number, work(number)));
    }
    let shared = Shared::new();
    let run = || {
        let _over = EndOnDrop(&shared);
        loop {
            let mut state = shared.lock();
            while !state.is_over
                && state.next < count
                && state.next >= state.taken + threads + waiting
            {
                state = shared.wait(state);
            }
            if state.is_over || state.next == count {
                // Others may still be at work.
                std::mem::forget(_over);
                return;
            }
            let number = state.next;
            state.next += 1;
            drop(state);
            shared.put(number, work(number));
        }
    };
    std::thread::scope(|scope| {
        let _over = EndOnDrop(&shared);
        for number in 0..threads {
            let thread = std::thread::Builder::new().name(format!("reader {number}"));
            if thread.spawn_scoped(scope, run).is_err() && number == 0 {
                // No threads can be started.
                return (0..count).try_for_each(|number| take(number, work(number)));
            }
        }
        for number in 0..count {
            // A thread that panicked ends the work; the scope passes its panic on.
            let Some(result) = shared.take(number) else {
                return Ok(());
            };
            take(number, result)?;
        }
        Ok(())
    })
}

/// Does what [`pipeline`] does, without threads.
///
/// # Errors
/// The first of `next` or `take`.
pub(crate) fn pipeline_inline<S, R, E>(
    mut next: impl FnMut() -> Result<Option<S>, E>,
    work: impl Fn(S) -> R,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    while let Some(fetched) = next()? {
        take(work(fetched))?;
    }
    Ok(())
}

/// Calls `next` until it returns `None`, `work` with each value, and `take` with each result, in order: `next` in a separate
/// thread, `work` in the threads of a pool, `take` in the caller's. At most `most` of them are worked on or wait.
///
/// # Errors
/// The first of `next` or `take`; no later result is taken.
pub(crate) fn pipeline<S: Send, R: Send, E: Send>(
    pool: &ThreadPool,
    most: usize,
    mut next: impl FnMut() -> Result<Option<S>, E> + Send,
    work: impl Fn(S) -> R + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let (shared, work) = (&Shared::new(), &work);
    let feeder = move || {
        // When all that was given is worked on.
        let _over = EndOnDrop(shared);
        pool.in_place_scope(|scope| {
            while let Some(number) = shared.next_number(most) {
                let Some(fetched) = next()? else { break };
                shared.lock().next = number + 1;
                scope.spawn(move |_| {
                    let over = EndOnDrop(shared);
                    let result = work(fetched);
                    shared.put(number, result);
                    // Only a panic ends the others' work.
                    std::mem::forget(over);
                });
            }
            Ok(())
        })
    };
    thread::scope(|scope| {
        let feeder = scope.spawn(feeder);
        let mut taken = Ok(());
        let over = EndOnDrop(shared);
        for number in 0.. {
            let Some(result) = shared.take(number) else {
                break;
            };
            taken = take(result);
            if taken.is_err() {
                break;
            }
        }
        drop(over);
        match feeder.join() {
            Ok(fed) => taken.and(fed),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{map_ordered, pipeline};

    #[test]
    fn results_come_in_order_and_an_error_ends_the_work() {
        let mut taken = Vec::new();
        let outcome: Result<(), ()> = map_ordered(
            500,
            4,
            2,
            |number| {
                // The first ones take longest.
                let rounds = (500 - number) * 50;
                (0..rounds).fold(number, |sum, round| {
                    std::hint::black_box(sum ^ round ^ round)
                })
            },
            |number, result| {
                taken.push((number, result));
                Ok(())
            },
        );
        outcome.unwrap();
        assert_eq!(taken, (0..500).map(|n| (n, n)).collect::<Vec<_>>());

        let outcome = map_ordered(
            1000,
            4,
            2,
            |number| number,
            |number, _| match number {
                7 => Err(number),
                8.. => panic!("behind the error"),
                _ => Ok(()),
            },
        );
        assert_eq!(outcome, Err(7));
        assert_eq!(map_ordered(0, 4, 1, |_| (), |_, ()| Err(())), Ok(()));
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_is_passed_on() {
        let outcome: Result<(), ()> = map_ordered(
            100,
            4,
            1,
            |number| assert!(number != 50, "the work panics"),
            |_, ()| Ok(()),
        );
        let _ = outcome;
    }

    #[test]
    fn what_is_fed_is_worked_on_and_taken_in_order() {
        let source = |last: u32, error_at: u32| {
            let mut numbers = 0..last;
            move || match numbers.next() {
                Some(number) if number == error_at => Err("no more"),
                number => Ok(number),
            }
        };
        let mut taken = Vec::new();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3);
        let pool = &pool.build().unwrap();
        let outcome = pipeline(
            pool,
            5,
            source(200, 500),
            |number| number * 2,
            |number| {
                taken.push(number);
                Ok(())
            },
        );
        assert_eq!(outcome, Ok(()));
        assert_eq!(taken, (0..200).map(|number| number * 2).collect::<Vec<_>>());

        let mut taken = 0;
        let count = |_| {
            taken += 1;
            Ok(())
        };
        assert_eq!(
            pipeline(pool, 5, source(200, 50), |number| number, count),
            Err("no more")
        );
        assert_eq!(taken, 50);
        let refuse = |number| if number == 7 { Err("full") } else { Ok(()) };
        assert_eq!(
            pipeline(pool, 5, source(u32::MAX, u32::MAX), |number| number, refuse),
            Err("full")
        );
    }

    #[test]
    #[should_panic(expected = "the work panics")]
    fn a_panic_of_what_is_fed_is_passed_on() {
        let mut numbers = 0..100;
        let work = |number| assert!(number != 50, "the work panics");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3);
        let pool = pool.build().unwrap();
        let _ = pipeline(&pool, 5, || Ok::<_, ()>(numbers.next()), work, |()| Ok(()));
    }
}
