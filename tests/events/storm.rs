//! Registrations that come, change and go while events are raised. `ANNALS_LONG=1` for long storms.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals_recorder::events::{Callback, Dropped, Info, Registration, Safety, Value};

use crate::support::producer;

const NO_HINTS: Info = Info::new();
const NO_FREE: Option<fn(Registration, Safety)> = None;

fn storm_time() -> Duration {
    let is_long = std::env::var_os("ANNALS_LONG").is_some();
    Duration::from_millis(if is_long { 60_000 } else { 1_500 })
}

/// What a registration's callbacks use, and its free-callback takes away.
struct Resource {
    is_there: AtomicBool,
    inside: AtomicU64,
    freed: AtomicU64,
}

#[test]
fn nobody_is_called_behind_the_free_callback() {
    let producer = &producer();
    let stop = &AtomicBool::new(false);
    let calls = &AtomicU64::new(0);
    let registrations = &AtomicU64::new(0);
    let ends = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let level = Safety::ALL[thread];
                    let value = [Value::Int(1)];
                    producer
                        .event
                        .raise(&producer.source, level, &value)
                        .unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for tool in 0..2 {
            let ends = Arc::clone(&ends);
            scope.spawn(move || {
                let mut round = tool;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let resource = Arc::new(Resource {
                        is_there: AtomicBool::new(true),
                        inside: AtomicU64::new(0),
                        freed: AtomicU64::new(0),
                    });
                    let registration = producer.register();
                    registrations.fetch_add(1, Ordering::SeqCst);
                    let runtime = producer.runtime.clone();
                    let frees_itself = round % 3 == 0;
                    let free = {
                        let (resource, ends) = (Arc::clone(&resource), Arc::clone(&ends));
                        move |freed: Registration, _: Safety| {
                            assert_eq!(freed, registration);
                            assert_eq!(resource.inside.load(Ordering::SeqCst), 0);
                            resource.is_there.store(false, Ordering::SeqCst);
                            assert_eq!(resource.freed.fetch_add(1, Ordering::SeqCst), 0);
                            ends.fetch_add(1, Ordering::SeqCst);
                        }
                    };
                    for level in [Safety::ThreadSafe, Safety::None, Safety::ThreadSafe] {
                        let (resource, runtime) = (Arc::clone(&resource), runtime.clone());
                        let free = free.clone();
                        let callback = Callback::new(move |_, registration, _| {
                            resource.inside.fetch_add(1, Ordering::SeqCst);
                            assert!(resource.is_there.load(Ordering::SeqCst));
                            if frees_itself {
                                // Only one of all attempts succeeds.
                                let _ = runtime.handle_free(registration, Some(free.clone()));
                            }
                            std::hint::spin_loop();
                            assert!(resource.is_there.load(Ordering::SeqCst));
                            resource.inside.fetch_sub(1, Ordering::SeqCst);
                        });
                        // The callbacks may have freed it already.
                        let _ = producer.runtime.register_callback(
                            registration,
                            level,
                            &NO_HINTS,
                            Some(callback),
                        );
                    }
                    let _ = runtime.handle_free(registration, Some(free));
                }
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < storm_time() {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(calls.load(Ordering::Relaxed) > 1000);
    let begun = registrations.load(Ordering::SeqCst);
    assert!(begun > 100, "{begun}");
    assert_eq!(ends.load(Ordering::SeqCst), begun, "each ends once");
    assert!(!producer.event.is_wanted());
}

#[test]
fn called_and_dropped_are_all_that_was_raised() {
    let producer = &producer();
    let registration = producer.register();
    let told = Arc::new(AtomicU64::new(0));
    let called = Arc::new(AtomicU64::new(0));
    let handler = {
        let told = Arc::clone(&told);
        move |dropped: &Dropped| {
            told.fetch_add(dropped.count, Ordering::SeqCst);
        }
    };
    producer
        .runtime
        .set_dropped_handler(registration, Some(handler))
        .unwrap();
    let callback = || {
        let called = Arc::clone(&called);
        Callback::new(move |_, _, _| {
            called.fetch_add(1, Ordering::SeqCst);
        })
    };
    let set = |level, callback| {
        producer
            .runtime
            .register_callback(registration, level, &NO_HINTS, callback)
            .unwrap();
    };
    let stop = &AtomicBool::new(false);
    let raised = &AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    let level = Safety::ALL[(thread + count as usize) % 4];
                    producer.raise(level, 1);
                    count += 1;
                }
                raised.fetch_add(count, Ordering::SeqCst);
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < storm_time() {
            for level in Safety::ALL {
                set(level, Some(callback()));
            }
            for level in Safety::ALL {
                set(level, None);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    set(Safety::AsyncSignalSafe, Some(callback()));
    // The rest is reported when the registration is freed.
    producer.runtime.handle_free(registration, NO_FREE).unwrap();
    let (called, told) = (called.load(Ordering::SeqCst), told.load(Ordering::SeqCst));
    assert!(
        called > 100 && told > 100,
        "{called} called, {told} dropped"
    );
    assert_eq!(called + told, raised.load(Ordering::SeqCst));
}
