//! Work done by several threads, its results in the order of the jobs.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, sync_channel};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads, at most.
const MOST_THREADS: usize = 6;

/// Jobs in progress, each with the recipient of its result.
pub(crate) struct Pool<K, R> {
    threads: Option<ThreadPool>,
    waiting: VecDeque<(K, Receiver<R>)>,
    most: usize,
}

impl<K, R: Send + 'static> Pool<K, R> {
    /// Creates a pool with a thread for each processor, up to a limit, since each thread holds a
    /// group of rows.
    pub(crate) fn new() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let count = count.min(MOST_THREADS);
        let threads = ThreadPoolBuilder::new().num_threads(count);
        let threads = threads.thread_name(|number| format!("export {number}"));
        Self {
            // Without threads, jobs are run immediately by the caller.
            threads: threads.build().ok(),
            waiting: VecDeque::new(),
            most: count + 2,
        }
    }

    /// Begins a job. Returns the result of the oldest one when enough are in progress.
    pub(crate) fn push(
        &mut self,
        of: K,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Option<(K, R)> {
        let (sender, receiver) = sync_channel(1);
        let run = move || {
            // Nothing receives the result when the export has failed.
            let _ = sender.send(job());
        };
        match &self.threads {
            Some(threads) => threads.spawn(run),
            None => run(),
        }
        self.waiting.push_back((of, receiver));
        if self.waiting.len() < self.most {
            return None;
        }
        self.next()
    }

    /// Returns the result of the oldest job, when it is there.
    pub(crate) fn next(&mut self) -> Option<(K, R)> {
        let (of, receiver) = self.waiting.pop_front()?;
        let result = receiver.recv();
        Some((
            of,
            result.expect("a job returns its result or ends the program"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let mut pool = Pool::new();
        let mut results = Vec::new();
        for number in 0..200_usize {
            let rounds = (200 - number) * 100;
            let job = move || (0..rounds).fold(number, |sum, r| std::hint::black_box(sum ^ r ^ r));
            results.extend(pool.push(number, job));
        }
        while let Some(result) = pool.next() {
            results.push(result);
        }
        assert_eq!(results, (0..200).map(|n| (n, n)).collect::<Vec<_>>());
    }
}
